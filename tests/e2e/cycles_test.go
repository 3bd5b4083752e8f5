package e2e

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/ncclnet"
)

// cycles is how many connections each way come and go.
var cycles = map[bool]int{false: 300, true: 1000}[full]

const (
	warmUp       = 100
	growthOfRSS  = 24 << 20 // bytes of anonymous memory that the process may still grow by after the first cycles, the race detector's own with them
	growthOfHeap = 1 << 20  // and bytes in use on the heap: a few connections' worth
	cycleMessage = 100_000  // bytes: over all lanes
)

// Connections that come and go leave no verbs object, descriptor, goroutine, thread or memory behind, on either side.
func TestCycles(t *testing.T) {
	f := newFabric(t, `
port a r0 netdev p0 addr 192.168.1.1/24
port a r1 netdev p1 addr 192.168.2.1/24
port b r0 netdev p0 addr 192.168.1.2/24
port b r1 netdev p1 addr 192.168.2.2/24
link a:r0 b:r0
link a:r1 b:r1
`)
	var sides [2]struct {
		in, out *os.File // what it reads and what the other one is told
		log     strings.Builder
		end     chan error
	}
	for i := range sides {
		var err error
		if sides[i].in, sides[i].out, err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	for i, node := range []string{"a", "b"} {
		cmd := f.command(node, os.Args[0])
		cmd.Env = append(cmd.Env, "E2E_HELPER=cycles", "NCCL_SOCKET_IFNAME=mgmt0", "NCCL_HOSTID="+node, "NCCL_MESH_RNR_RETRY=0")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = sides[i].in, sides[1-i].out, &sides[i].log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		sides[i].end = make(chan error, 1)
		go func() {
			sides[i].end <- cmd.Wait()
			guard.Stop()
		}()
	}
	for i := range sides { // only the processes hold the pipes: when one ends the other sees it
		if err := errors.Join(sides[i].in.Close(), sides[i].out.Close()); err != nil {
			t.Error(err)
		}
	}
	for i := range sides {
		if err := <-sides[i].end; err != nil {
			t.Errorf("side %d: %v", i, err)
		}
	}
	for i := range sides {
		t.Logf("side %d:\n%s", i, &sides[i].log)
	}
}

func init() { helpers["cycles"] = cyclesHelper }

// cyclesHelper is one side. Both are ranks: they tell each other their handles over standard input and output.
func cyclesHelper() error {
	log := func(level, subsystems int, file string, line int, text string) {
		if level <= 2 {
			fmt.Fprintf(os.Stderr, "%s:%d %s\n", file, line, text)
		}
	}
	n := ncclnet.New(ncclnet.NewProcess(ncclnet.Host{Getenv: os.Getenv, Environ: os.Environ}))
	ctx, r := n.Init(log, ncclnet.Caller{}, -1)
	if r != 0 {
		return fmt.Errorf("init: %v", r)
	}
	m, err := ibv.Alloc(2 * cycleMessage)
	if err != nil {
		return err
	}
	c := cycler{n: n, ctx: ctx, m: m, in: bufio.NewReader(os.Stdin)}
	var before usage
	for i := range cycles {
		if i == warmUp {
			if before, err = settled(nil); err != nil {
				return err
			}
		}
		if err := c.once(i); err != nil {
			return fmt.Errorf("cycle %d: %w", i, err)
		}
	}
	after, err := settled(&before)
	fmt.Fprintf(os.Stderr, "after %d cycles %+v\nafter %d %+v\n", warmUp, before, cycles, after)
	if err != nil {
		return err
	}
	if _, err := c.swap("done"); err != nil { // nobody ends while the other still measures
		return err
	}
	if r := n.Finalize(ctx); r != 0 {
		return fmt.Errorf("finalize: %v", r)
	}
	if diff := cmp.Diff(map[string]int{"memories": 1}, ibv.Live()); diff != "" {
		return fmt.Errorf("verbs objects after finalize (-want +got):\n%s", diff)
	}
	return m.Free()
}

type cycler struct {
	n   *ncclnet.Net
	ctx ncclnet.Handle
	m   *ibv.Memory
	in  *bufio.Reader
}

// swap tells the other side a line and returns its own.
func (c *cycler) swap(line string) (string, error) {
	if _, err := fmt.Println(line); err != nil {
		return "", err
	}
	s, err := c.in.ReadString('\n')
	return strings.TrimSpace(s), err
}

// once opens a connection each way, passes a message over both, and closes them.
func (c *cycler) once(i int) error {
	n := c.n
	l, own, r := n.Listen(c.ctx, 0)
	if r != 0 {
		return fmt.Errorf("listen: %v", r)
	}
	text, err := c.swap(hex.EncodeToString(own[:]))
	if err != nil {
		return err
	}
	var theirs [ncclnet.HandleSize]byte
	if k, err := hex.Decode(theirs[:], []byte(text)); err != nil || k != len(theirs) {
		return fmt.Errorf("the other side says %q", text)
	}
	var send, recv ncclnet.Handle
	for send == 0 || recv == 0 {
		if send == 0 {
			if send, r = n.Connect(c.ctx, 0, &theirs); r != 0 {
				return fmt.Errorf("connect: %v", r)
			}
		}
		if recv == 0 {
			if recv, r = n.Accept(l); r != 0 {
				return fmt.Errorf("accept: %v", r)
			}
		}
		time.Sleep(50 * time.Microsecond)
	}
	if r := n.CloseListen(l); r != 0 {
		return fmt.Errorf("closeListen: %v", r)
	}
	if err := c.exchange(i, send, recv); err != nil {
		return err
	}
	if _, err := c.swap("over"); err != nil { // a close before the other has its message is an error to it
		return err
	}
	if a, b := n.CloseSend(send), n.CloseRecv(recv); a != 0 || b != 0 {
		return fmt.Errorf("close: %v, %v", a, b)
	}
	return nil
}

func (c *cycler) exchange(i int, send, recv ncclnet.Handle) error {
	n, at := c.n, c.m.Addr()
	smr, r1 := n.RegMr(send, at, cycleMessage, 1)
	rmr, r2 := n.RegMr(recv, at+cycleMessage, cycleMessage, 1)
	if r1 != 0 || r2 != 0 {
		return fmt.Errorf("regMr: %v, %v", r1, r2)
	}
	source, sink := c.m.Bytes()[:cycleMessage], c.m.Bytes()[cycleMessage:2*cycleMessage]
	for k := range source {
		source[k], sink[k] = byte(i+k*7), 0
	}
	var rq, sq ncclnet.Handle
	var r ncclnet.Result
	for rq == 0 || sq == 0 {
		if rq == 0 {
			if rq, r = n.Irecv(recv, []ncclnet.Buffer{{Addr: at + cycleMessage, Size: cycleMessage, Tag: 1, MR: rmr}}); r != 0 {
				return fmt.Errorf("irecv: %v", r)
			}
		}
		if sq == 0 {
			if sq, r = n.Isend(send, at, cycleMessage, 1, smr, 0); r != 0 {
				return fmt.Errorf("isend: %v", r)
			}
		}
		runtime.Gosched()
	}
	var sizes ncclnet.Sizes
	for _, q := range []ncclnet.Handle{sq, rq} {
		for done := false; !done; runtime.Gosched() {
			if done, r = n.Test(q, &sizes); r != 0 {
				return fmt.Errorf("test: %v", r)
			}
		}
	}
	if !bytes.Equal(source, sink) { // both sides send the same
		return errors.New("the message that came is not the one sent")
	}
	if i%2 == 0 { // else closing does it
		if r1, r2 := n.DeregMr(send, smr), n.DeregMr(recv, rmr); r1 != 0 || r2 != 0 {
			return fmt.Errorf("deregMr: %v, %v", r1, r2)
		}
	}
	return nil
}

// usage is what a process holds.
type usage struct {
	Verbs                        map[string]int
	FDs, Goroutines, Threads, KB int
	Heap                         uint64 // in use
}

func measure() (u usage, err error) {
	debug.FreeOSMemory()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "RssAnon: %d", &u.KB) // of one line each
		_, _ = fmt.Sscanf(line, "Threads: %d", &u.Threads)
	}
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	u.Heap = ms.HeapAlloc
	u.Verbs, u.FDs, u.Goroutines = ibv.Live(), len(fds), runtime.NumGoroutine()
	return u, nil
}

// settled measures when queue pairs no longer linger: when usage is no more than base, or no longer falls.
func settled(base *usage) (usage, error) {
	deadline := time.Now().Add(2 * time.Minute)
	for last := -1; ; time.Sleep(100 * time.Millisecond) {
		u, err := measure()
		if err != nil {
			return u, err
		}
		if base == nil {
			if u.Verbs["queue pairs"] == 0 && u.Goroutines == last {
				return u, nil
			}
			last = u.Goroutines
		} else {
			diff := cmp.Diff(base.Verbs, u.Verbs)
			grown, heap := (u.KB-base.KB)<<10, int(u.Heap)-int(base.Heap)
			if diff == "" && u.FDs <= base.FDs && u.Goroutines <= base.Goroutines && u.Threads <= base.Threads+4 && grown <= growthOfRSS && heap <= growthOfHeap {
				return u, nil
			}
			if time.Now().After(deadline) {
				return u, fmt.Errorf("left behind: %d bytes more, %d on the heap, verbs objects (-before +after):\n%s", grown, heap, diff)
			}
		}
		if time.Now().After(deadline) {
			return u, fmt.Errorf("queue pairs linger: %+v", u)
		}
	}
}
