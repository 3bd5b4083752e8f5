package transport_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/topology"
)

// madeUp is a Source with one interface, which a test changes.
type madeUp struct {
	mu      sync.Mutex
	addr    netip.Prefix
	carrier bool

	changed func()
	link    func(string, bool)
}

// local makes a transport see one interface, with an address that each machine has.
func local(o *transport.Options) {
	o.Machine.Source = &madeUp{addr: netip.MustParsePrefix("127.0.0.1/8"), carrier: true}
}

// plainSource is a source without RDMA, on machine a of a simulation.
func plainSource() *madeUp {
	return &madeUp{addr: netip.MustParsePrefix("192.168.1.1/24"), carrier: true}
}

func (m *madeUp) Discover() (*topology.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := map[bool]string{true: "UP", false: "DOWN"}[m.carrier]
	return &topology.Node{Plain: []topology.Port{{
		Netdev: "cable0", IfIndex: 7, NetdevMTU: 9000, Carrier: m.carrier, Active: m.carrier, State: state, Addrs: []netip.Prefix{m.addr}, LinkLayer: 2, NUMA: -1,
		GIDs: []topology.Address{{Addr: netip.AddrFrom16(m.addr.Addr().As16()), Type: topology.GIDTypeNone, Netdev: "cable0", PrefixLen: m.addr.Bits()}},
	}}, Links: []topology.Link{{Name: "cable0", Index: 7, Up: true, Carrier: m.carrier, Addrs: []netip.Prefix{m.addr}}}}, nil
}

func (m *madeUp) Watch(_ <-chan struct{}, changed func(), link func(string, bool), _ func(*guard.Panic)) error {
	m.changed, m.link = changed, link
	return nil
}

func (*madeUp) GPUs() []topology.Slot {
	return []topology.Slot{{PCIPath: "/sys/devices/pci0000:00", NUMA: 3}}
}

func (*madeUp) PeerMemory() bool { return true }

func (m *madeUp) change(addr string, carrier bool) {
	m.mu.Lock()
	m.addr, m.carrier = netip.MustParsePrefix(addr), carrier
	m.mu.Unlock()
	m.link("cable0", carrier)
	m.changed()
}

// A transport takes devices, interfaces, their changes and its identity from its Machine.
func TestMachine(t *testing.T) {
	transporttest.Leaks(t)
	var log transporttest.Log
	source := &madeUp{addr: netip.MustParsePrefix("127.0.0.1/8"), carrier: true}
	machine := func(boot string) func(*transport.Options) {
		return func(o *transport.Options) {
			o.Machine = transport.Machine{Source: source, Identity: &transport.Identity{Hostname: "spark.example.org", Boot: boot, PID: 4711, Command: "job"}, KeepGarbage: true, Page: stats.Private}
		}
	}
	other := transporttest.NewTCP(t, 1, machine("second"))
	tr := transporttest.NewTCP(t, 1, machine("first"), log.Takes(slog.LevelInfo))
	if names := tr.Cables(); !slices.Equal(names, []string{"cable0"}) {
		t.Errorf("the interfaces are %v", names)
	}
	if gpus := tr.GPUs(); len(gpus) != 1 || gpus[0].NUMA != 3 {
		t.Errorf("the GPUs are %v", gpus)
	}
	if diff := cmp.Diff(transport.GPUReach{PeerMemory: true, TCP: true}, tr.GPUReach()); diff != "" {
		t.Errorf("what can reach GPU memory (-want +got):\n%s", diff)
	}
	if tr.Node() == other.Node() {
		t.Error("two machines are one node")
	}
	if name := tr.Host(); name != "spark" {
		t.Errorf("the host is called %q", name)
	}
	if tr.Page() != nil {
		t.Error("others are shown the counters")
	}

	port := tr.Ports()[0]
	source.change("127.0.0.2/8", false)
	if !port.NoCarrier() {
		t.Error("the port has a carrier")
	}
	transporttest.Await(t, "the change", func() bool { return log.Count("port 0 changed: ") == 1 })
	if now := port.Now(); now.Carrier || now.Addrs[0].String() != "127.0.0.2/8" {
		t.Errorf("the port is %+v", now)
	}
}

// Without a Machine a transport uses the machine that its process runs on.
func TestKernelMachine(t *testing.T) {
	transporttest.Leaks(t)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ = strings.Cut(name, ".")
	tr := transporttest.NewTCP(t, 1, local)
	if got := tr.Host(); got != name {
		t.Errorf("the host is called %q, want %q", got, name)
	}
	if tr.Node() != transporttest.NewTCP(t, 1, local).Node() {
		t.Error("two processes of a machine are on two nodes")
	}
}

// drawn is a source of random numbers that repeats itself and records what was drawn.
type drawn struct {
	mu    sync.Mutex
	times map[string]int
}

func (d *drawn) fill(b []byte, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.times == nil {
		d.times = map[string]int{}
	}
	d.times[what]++
	for at := 0; at < len(b); {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", what, d.times[what], at))
		at += copy(b[at:], sum[:])
	}
}

// has reports whether something with this suffix was drawn.
func (d *drawn) has(end string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what := range d.times {
		if strings.HasSuffix(what, end) {
			return true
		}
	}
	return false
}

// A transport draws all random numbers from its Machine: one that draws the same numbers is the same process with the
// same secrets.
func TestDraws(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var handles [2]handshake.Handle
		for i := range handles {
			var from, to drawn
			on := func(d *drawn, host string) func(*transport.Options) {
				return func(o *transport.Options) { o.Machine.Random, o.HostID = d.fill, host }
			}
			a, b := transporttest.New(t, on(&from, "a")), transporttest.New(t, on(&to, "b"))
			l, h := transporttest.Listen(t, b)
			handles[i] = h
			s, r := transporttest.Join(t, a.Dial(h), l)
			transporttest.CloseBoth(t, s, r)
			asked, enough := context.WithCancel(t.Context())
			enough()
			_, _ = a.Neighbours(asked) // which begins to ask, and does not wait
			transporttest.Await(t, "a question", func() bool { return from.has("nonce of questions") })
			for _, d := range []struct {
				by    *drawn
				names []string
			}{
				{&from, []string{"process id", "number of the first listen", ": nonce", ": first packet", ": token", "nonce of questions"}},
				{&to, []string{"process id", "number of the first listen", "secret of a listen", ": challenge", ": first packet", ": token"}},
			} {
				for _, what := range d.names {
					if !d.by.has(what) {
						t.Errorf("no %q was drawn of %v", what, d.by.times)
					}
				}
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		}
		for i := range handles {
			handles[i].Port = 0 // which the kernel has chosen
		}
		if diff := cmp.Diff(handles[0], handles[1], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("what a listener is known by, of two processes that draw alike (-first +second):\n%s", diff)
		}
	})
}
