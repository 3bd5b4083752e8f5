package ncclnet

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode"

	"ncclmesh/transport"
)

// One process may have loaded two NCCLs. When the one that came last ends, the log goes to the other, and never again
// to a library that may be unloaded.
func TestLogStaysWithWhoStays(t *testing.T) {
	n := newTestNet(t)
	a := n.init()
	var gone bool
	var later []string
	b, r := n.Init(func(_, _ int, _ string, _ int, text string) {
		if later = append(later, text); gone {
			t.Errorf("logged into a library that is gone: %s", text)
		}
	}, Caller{}, -1)
	n.ok("init", r)
	n.logged()
	_, _, _ = n.Listen(a, 7)
	if len(later) != 1 {
		t.Errorf("the log of who came last: %q", later)
	}
	n.ok("finalize", n.Finalize(b))
	gone = true
	_, _, _ = n.Listen(a, 7)
	if log := n.logged(); !strings.Contains(log, "listen: invalid argument: device 7") {
		t.Errorf("the log of who stays: %q", log)
	}
	n.ok("finalize", n.Finalize(a))
	_, _, _ = n.Listen(a, 7)
	if log := n.logged(); log != "" {
		t.Errorf("logged after the last finalize: %s", log)
	}
}

// A panic in a Close leaves no closed transport behind for the next caller.
func TestInitAfterPanicInClosing(t *testing.T) {
	n := newTestNet(t)
	a, first := n.init(), n.f
	first.ending = func() { panic("boom") }
	func() {
		defer func() { _ = recover() }()
		n.Finalize(a)
	}()
	n.init()
	if n.f == first {
		t.Error("init was given what had been closed")
	}
}

// testProcess opens networks and counts those that are open.
type testProcess struct {
	*Process
	env    map[string]string
	open   atomic.Int32
	opened atomic.Int32
	begun  chan struct{} // a closing has begun
	end    chan struct{} // lets it end
	refuse error
}

type countedNetwork struct {
	fakeNetwork
	t      *testing.T
	p      *testProcess
	closed atomic.Bool
}

func newTestProcess(t *testing.T) *testProcess {
	p := &testProcess{env: map[string]string{}}
	host := Host{Getenv: func(name string) string { return p.env[name] }, Environ: func() []string { return nil }}
	p.Process = newProcess(host, func(transport.Options) (network, error) {
		if p.refuse != nil {
			return nil, p.refuse
		}
		if n := p.open.Add(1); n > 1 {
			t.Errorf("%d networks are open", n)
		}
		p.opened.Add(1)
		return &countedNetwork{t: t, p: p}, nil
	})
	return p
}

func (c *countedNetwork) FlushBeforeExit() {}

func (c *countedNetwork) Close() error {
	if c.closed.Swap(true) {
		c.t.Error("closed twice")
	}
	if c.p.begun != nil {
		close(c.p.begun)
		<-c.p.end
	}
	c.p.open.Add(-1)
	return nil
}

func isClosed(h *Reference) bool { return h.net.(*countedNetwork).closed.Load() }

func (p *testProcess) hold(t *testing.T) *Reference {
	t.Helper()
	h, err := p.Acquire(nil, -1)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func release(t *testing.T, h *Reference) {
	t.Helper()
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}

// Steps of references a, b and c: upper case acquires, lower case releases, '?' acquires if the transport is open.
func TestHolders(t *testing.T) {
	tests := []struct {
		steps        string
		opened, open int32
	}{
		{"", 0, 0},
		{"A", 1, 1},
		{"Aa", 1, 0},
		{"AB", 1, 1},
		{"ABa", 1, 1},
		{"ABab", 1, 0},
		{"ABba", 1, 0},
		{"ABaa", 1, 1}, // a holder's second release is not another's
		{"Aaa", 1, 0},
		{"AaBb", 2, 0},
		{"AaBa", 2, 1},
		{"?", 0, 0},
		{"Aa?", 1, 0},
		{"A?a", 1, 1}, // c stays
		{"A?ac", 1, 0},
		{"A?cBac", 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.steps, func(t *testing.T) {
			p := newTestProcess(t)
			holds := map[rune]*Reference{}
			for _, step := range tt.steps {
				switch holder := unicode.ToUpper(step); {
				case step == '?':
					holds['C'] = p.AcquireIfOpen()
				case step == holder:
					holds[holder] = p.hold(t)
				default:
					release(t, holds[holder])
				}
			}
			if p.opened.Load() != tt.opened || p.open.Load() != tt.open {
				t.Errorf("opened %d, open %d; want %d, %d", p.opened.Load(), p.open.Load(), tt.opened, tt.open)
			}
			for _, h := range holds {
				if h != nil && slices.Contains(p.references, h) && isClosed(h) {
					t.Error("closed under a holder")
				}
			}
		})
	}
}

func TestHoldRefused(t *testing.T) {
	p := newTestProcess(t)
	p.refuse = errors.New("no port")
	var said []string
	logger := func(_, _ int, _ string, _ int, text string) { said = append(said, text) }
	if h, err := p.Acquire(logger, -1); h != nil || !errors.Is(err, p.refuse) {
		t.Errorf("%v, %v", h, err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "build ") {
		t.Errorf("said while opening: %q", said)
	}
	p.log.Warn("later")
	if len(said) != 1 {
		t.Errorf("said to who was refused: %q", said[1:])
	}
	p.env["NCCL_IB_TC"] = "x"
	if _, err := p.Acquire(nil, -1); !errors.Is(err, errUsage) {
		t.Errorf("a bad setting: %v", err)
	}
	p.refuse, p.env = nil, nil
	release(t, p.hold(t))
}

// Acquire waits while the last Release closes the transport, and then opens a new one.
func TestHoldDuringLastRelease(t *testing.T) {
	p := newTestProcess(t)
	p.begun, p.end = make(chan struct{}), make(chan struct{})
	n := New(p.Process)
	last := p.hold(t)
	var wait sync.WaitGroup
	wait.Go(func() { release(t, last) })
	<-p.begun
	if c, r := n.Devices(); c != 0 || r != ncclInvalidUsage { // waits for nobody
		t.Errorf("devices while it closes: %d, %v", c, r)
	}
	var next *Reference
	wait.Go(func() { next = p.hold(t) })
	wait.Go(func() {
		if h := p.AcquireIfOpen(); h != nil { // of next, if that came first
			release(t, h)
		}
	})
	runtime.Gosched()
	p.begun = nil // nobody reads it before the closing that now ends
	close(p.end)
	wait.Wait()
	if isClosed(next) || p.opened.Load() != 2 {
		t.Errorf("closed %v; %d opened, want 2", isClosed(next), p.opened.Load())
	}
	release(t, next)
}

// References are acquired and released concurrently: no transport is closed while it has a reference, and no two are
// ever open.
func TestLastReleases(t *testing.T) {
	p := newTestProcess(t)
	var wait sync.WaitGroup
	for i := range 8 {
		logger := func(int, int, string, int, string) {}
		if i%2 == 0 {
			logger = nil
		}
		wait.Go(func() {
			for range 200 {
				h, err := p.Acquire(logger, -1)
				if err != nil {
					t.Error(err)
					return
				}
				if isClosed(h) {
					t.Error("closed under a holder")
				}
				p.log.Warn("held")
				if other := p.AcquireIfOpen(); other == nil || other.mesh != h.mesh {
					t.Error("what is held is not open")
				} else {
					release(t, other)
				}
				release(t, h)
			}
		})
	}
	wait.Wait()
	if p.open.Load() != 0 || p.mesh.Load() != nil || len(p.references) != 0 || p.logger != nil {
		t.Errorf("left: %d open, %d holds", p.open.Load(), len(p.references))
	}
}

// A logger is not called after the release of its reference, whichever goroutine logs.
func TestLoggerEndsWithItsHolder(t *testing.T) {
	p := newTestProcess(t)
	first := p.hold(t)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.log.Warn("from elsewhere")
			}
		}
	})
	for range 200 {
		var said, gone atomic.Bool
		h, err := p.Acquire(func(int, int, string, int, string) {
			said.Store(true)
			if gone.Load() {
				t.Error("called after the release")
			}
		}, -1)
		if err != nil {
			t.Fatal(err)
		}
		for !said.Load() {
			runtime.Gosched()
		}
		release(t, h)
		gone.Store(true)
	}
	close(stop)
	wait.Wait()
	release(t, first)
}

// Communicators begin and end concurrently, as those of several threads do.
func TestContextsAtOnce(t *testing.T) {
	p := newTestProcess(t)
	n := New(p.Process)
	logger := func(int, int, string, int, string) {}
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			for range 100 {
				ctx, r := n.Init(logger, Caller{}, -1)
				if r != ncclSuccess {
					t.Errorf("init: %v", r)
					return
				}
				if c, r := n.Devices(); c != 1 || r != ncclSuccess {
					t.Errorf("devices: %d, %v", c, r)
				}
				if i%2 == 0 && n.Tuner(logger, 2, 2, true) == nil {
					t.Error("no tuner while the network is open")
				}
				if r := n.Finalize(ctx); r != ncclSuccess {
					t.Errorf("finalize: %v", r)
				}
			}
		})
	}
	wait.Wait()
	if p.open.Load() != 0 {
		t.Error("open after the last finalize")
	}
	if n.Tuner(logger, 2, 2, true) != nil {
		t.Error("tuned after the last finalize")
	}
}
