package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	mib = 1 << 20
	kib = 1 << 10

	hangGuard = 2 * time.Minute // no run takes that long
	meetAt    = "a:7776"        // where the two processes of a pair meet
	driverAt  = "a:7777"        // where the ranks of the driver do
)

// A bench runs the programs of tests/bench.
type bench struct {
	ctx   context.Context
	o     options
	build string

	terminal bool // stderr is one

	links []link // of the fabric that is up
	up    *fabric

	watch watch // of the round that is being measured

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
	b := &bench{ctx: ctx, o: o, build: build, scale: 1}
	if info, err := os.Stderr.Stat(); err == nil {
		b.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	for _, need := range []string{b.plugin(), b.program("verbs"), b.program("tcp"), b.program("plugin"), b.driver(), filepath.Join(b.tools(), "fakenet")} {
		if _, err := os.Stat(need); err != nil {
			return nil, fmt.Errorf("%w: run make bench, which builds it", err)
		}
	}
	return b, nil
}

func (b *bench) plugin() string             { return filepath.Join(b.build, "libnccl-net-mesh.so") }
func (b *bench) driver() string             { return filepath.Join(b.build, "netdriver") }
func (b *bench) tools() string              { return filepath.Join(b.build, "fakeverbs") }
func (b *bench) program(name string) string { return filepath.Join(b.build, "bench", name) }

// progress shows on a terminal what is being measured.
func (b *bench) progress(format string, a ...any) {
	if b.terminal {
		fmt.Fprintf(os.Stderr, "\r\033[K"+format, a...)
	}
}

func (b *bench) close() error {
	if b.up == nil {
		return nil
	}
	up := b.up
	b.up, b.links = nil, nil
	return up.close()
}

// on makes the fabric of those links the one that is up.
func (b *bench) on(links []link) error {
	if b.up != nil && fmt.Sprint(b.links) == fmt.Sprint(links) {
		return nil
	}
	if err := b.close(); err != nil {
		return err
	}
	up, err := raise(b.tools(), links)
	if err != nil {
		return err
	}
	b.up, b.links = up, links
	return nil
}

// calibrate finds what the machine copies, and how fast modelled links may be.
func (b *bench) calibrate() error {
	b.progress("how fast this machine copies")
	if err := b.on(fast); err != nil {
		return err
	}
	for range 3 {
		s, err := b.limit(0, "stream", "--sizes", strconv.Itoa(mib), "--seconds", "0.2")
		if err != nil {
			return err
		}
		b.copyRate = max(b.copyRate, s[0].Rate/1e6)
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
		Time: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Arch: runtime.GOARCH, Load: one,
		CopyMBs: b.copyRate, Scale: b.scale, Runs: b.o.runs,
	}
}

// round measures once. With --quiet it measures again while other programs
// disturb, and returns what was disturbed least.
func round[T any](b *bench, measure func() (T, error)) (result T, others float64, err error) {
	const (
		disturbed = 0.05 // of the processors' time
		most      = 8    // tries
	)
	for try := range most {
		b.watch = startWatch()
		got, err := measure()
		if err != nil {
			return result, 0, err
		}
		if o := b.watch.others(runtime.NumCPU()); try == 0 || o < others {
			result, others = got, o
		}
		if !b.o.quiet || others <= disturbed {
			break
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-b.ctx.Done():
			return result, 0, b.ctx.Err()
		}
	}
	return result, others, nil
}

// A sample is a line that a program printed.
type sample struct {
	Size      int     `json:"size"`
	Rate      float64 `json:"rate"`   // bytes a second
	CPU       float64 `json:"cpu_ns"` // of both processes, for a message
	Micros    float64 `json:"us"`
	Seconds   float64 `json:"seconds"`
	SendBytes float64 `json:"send_bytes"`
	RecvBytes float64 `json:"recv_bytes"`
}

// limit runs the C loop over the lane of device rdma<device>.
func (b *bench) limit(device int, work string, args ...string) ([]sample, error) {
	return b.pair(nil, b.program("verbs"), append([]string{"--work", work, "--device", fmt.Sprintf("rdma%d", device)}, args...))
}

// ours runs the same over the plugin.
func (b *bench) ours(work string, args ...string) ([]sample, error) {
	b.runs++
	return b.plug(nil, work, args)
}

// plug runs the plugin with something in its environment.
func (b *bench) plug(env []string, work string, args []string) ([]sample, error) {
	return b.pair(env, b.program("plugin"), append([]string{"--work", work, "--plugin", b.plugin()}, args...))
}

// pair runs a program on nodes a and b; the one on a reports.
func (b *bench) pair(env []string, program string, args []string) ([]sample, error) {
	args = append([]string{"--meet", meetAt, "--seconds", fmt.Sprint(b.o.seconds)}, args...)
	var cmds []command
	for rank, node := range []string{"a", "b"} {
		cmds = append(cmds, command{node, program, append([]string{"--rank", strconv.Itoa(rank)}, args...), env})
	}
	out, err := b.together(cmds)
	if err != nil {
		return nil, err
	}
	var all []sample
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var s sample
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", filepath.Base(program), out, err)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s printed nothing", filepath.Base(program))
	}
	return all, nil
}

type command struct {
	node, program string
	args          []string
	env           []string // beside this process's own
}

// together runs commands at once and returns what the first printed. A receiver
// that is not ready fails the run, and is counted.
func (b *bench) together(commands []command) ([]byte, error) {
	ctx, cancel := context.WithTimeout(b.ctx, hangGuard)
	defer cancel()
	var out bytes.Buffer
	said := make([]bytes.Buffer, len(commands))
	cmds := make([]*exec.Cmd, len(commands))
	ended := make(chan error, len(commands))
	for i, c := range commands {
		cmd := b.up.command(ctx, c.node, c.program, c.args...)
		cmd.Env = append(append(os.Environ(), "NCCL_MESH_RNR_RETRY=0"), c.env...)
		cmd.Stderr = &said[i]
		if i == 0 {
			cmd.Stdout = &out
		}
		cmds[i] = cmd
	}
	var errs []error
	started := 0
	for i, cmd := range cmds {
		if err := cmd.Start(); err != nil {
			errs = append(errs, err)
			cancel()
			break
		}
		started++
		go func() {
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("%s on node %s: %w", filepath.Base(commands[i].program), commands[i].node, err)
				cancel() // the others would wait for it
			}
			ended <- err
		}()
	}
	for range started {
		errs = append(errs, <-ended)
	}
	for _, cmd := range cmds[:started] {
		b.watch.own += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	err := errors.Join(errs...)
	if err == nil {
		return out.Bytes(), nil
	}
	for i := range said {
		text := strings.TrimSpace(said[i].String())
		if strings.Contains(text, "RNR") {
			b.rnr++
		}
		if text != "" {
			err = fmt.Errorf("%w\n%s: %s", err, commands[i].node, text)
		}
	}
	return nil, err
}
