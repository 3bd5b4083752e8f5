package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/nccl"
)

const (
	mib = 1 << 20
	kib = 1 << 10

	hangGuard    = 2 * time.Minute // no run takes that long
	meetAt       = "a:7776"        // where the two processes of a work meet
	meetBesideAt = "a:7778"        // and those of the one that it is measured beside
	driverAt     = "a:7777"        // where the ranks of the driver do
)

// A bench runs the programs of tests/bench.
type bench struct {
	ctx   context.Context
	o     options
	build string

	out      io.Writer // for people
	terminal bool      // stderr is one
	at       string    // how far it is

	ib string // NCCL's own transport, once it is needed

	links []link // of the fabric that is up
	up    *fabric.Fabric

	cpus   []int // that ranks run on
	shared bool  // all of them on the first
	watch  watch // of the round that is being measured

	copyRate float64 // MB/s
	scale    float64 // of modelled rates
	runs     int     // of the plugin, so far
	rnr      int     // of them that met a receiver that was not ready
}

func newBench(ctx context.Context, o options) (*bench, error) {
	build, err := filepath.Abs(o.build)
	if err != nil {
		return nil, err
	}
	cpus, err := processors(o.cpus)
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, o: o, build: build, out: os.Stdout, cpus: cpus, scale: 1}
	if o.json == "-" {
		b.out = os.Stderr
	}
	if info, err := os.Stderr.Stat(); err == nil {
		b.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	for _, need := range []string{b.plugin(), b.program("verbs"), b.program("tcp"), b.program("plugin"), b.program("writes"), b.program("library"),
		filepath.Join(b.build, oneSided), b.driver(), filepath.Join(b.tools(), "fakenet")} {
		if _, err := os.Stat(need); err != nil {
			return nil, fmt.Errorf("%w: run make bench, which builds it", err)
		}
	}
	return b, nil
}

// needNetIB has NCCL's own transport, as a plugin. It is fetched and linked once.
func (b *bench) needNetIB() (err error) {
	if b.ib == "" {
		b.progress("fetching and linking NCCL")
		b.ib, err = nccl.NetIB(b.ctx, b.build)
	}
	return err
}

func (b *bench) plugin() string             { return filepath.Join(b.build, library) }
func (b *bench) driver() string             { return filepath.Join(b.build, "netdriver") }
func (b *bench) tools() string              { return filepath.Join(b.build, "fakeverbs") }
func (b *bench) program(name string) string { return filepath.Join(b.build, "bench", name) }

// progress shows on a terminal what is being measured.
func (b *bench) progress(format string, a ...any) {
	if b.terminal {
		fmt.Fprintf(os.Stderr, "\r\033[K"+b.at+format, a...)
	}
}

func (b *bench) close() error {
	if b.up == nil {
		return nil
	}
	up := b.up
	b.up, b.links = nil, nil
	return up.Close()
}

// processor is the one that a rank runs on.
func (b *bench) processor(rank int) int {
	if b.shared {
		return b.cpus[0]
	}
	return b.cpus[rank%len(b.cpus)]
}

// on makes the fabric of those links the one that is up, and says whether ranks
// share a processor.
func (b *bench) on(links []link, shared bool) error {
	b.shared = shared
	if b.up != nil && fmt.Sprint(b.links) == fmt.Sprint(links) {
		return nil
	}
	if err := b.close(); err != nil {
		return err
	}
	up, err := fabric.Up(b.tools(), meshOf(links).Topology())
	if err != nil {
		return err
	}
	b.up, b.links = up, links
	return nil
}

// calibrate finds what the machine copies, and how fast modelled links may be.
func (b *bench) calibrate() error {
	b.progress("how fast this machine copies")
	if err := b.on(fast, false); err != nil {
		return err
	}
	for range 3 {
		s, err := b.run(b.loop("verbs", 0, "stream", "--sizes", strconv.Itoa(mib), "--seconds", "0.2"))
		if err != nil {
			return err
		}
		b.copyRate = max(b.copyRate, s.Rate/1e6)
	}
	for b.scale = 1; topRate*b.scale > b.copyRate/8; {
		b.scale /= 2
	}
	return nil
}

func (b *bench) machine() machine {
	load, _ := os.ReadFile("/proc/loadavg") // its absence is no error
	one, _, _ := strings.Cut(string(load), " ")
	return machine{
		Time: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Ranks: b.cpus, Arch: runtime.GOARCH, Load: one,
		CopyMBs: b.copyRate, Scale: b.scale, Runs: b.o.runs,
	}
}

// A sample is a line that a program printed.
type sample struct {
	Size      int     `json:"size"`
	Messages  float64 `json:"messages"`
	Rate      float64 `json:"rate"`   // bytes a second
	CPU       float64 `json:"cpu_ns"` // of both processes, for a message
	Micros    float64 `json:"us"`
	Micros99  float64 `json:"us_99"`    // all but a hundredth take no longer
	Isend     float64 `json:"isend_ns"` // that finds no receive
	Test      float64 `json:"test_ns"`  // that finds nothing
	Seconds   float64 `json:"seconds"`
	SendBytes float64 `json:"send_bytes"`
	RecvBytes float64 `json:"recv_bytes"`
	Relays    float64 `json:"-"` // ns of processors that the relays took meanwhile
}

// grown is what a process grew by for a connection, in bytes: the larger of the
// two halves counts.
func (s sample) grown() float64 { return max(s.SendBytes, s.RecvBytes) }
