package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/path"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/topology"
)

// station is a process that takes part in circuits: control plane, data port, relay.
type station struct {
	*relay.Relay
	ep   *control.Endpoint
	data *dataport.Endpoint
	id   handshake.ProcessID
	node handshake.NodeID
}

// newStation makes a station on this host, over the interfaces of a transport.
func newStation(t *testing.T, i int, f *path.Finder, neighbour func(context.Context, handshake.ProcessID, uint8) (*control.Session, error)) *station {
	t.Helper()
	s := &station{id: handshake.NewProcessID(nil), node: handshake.NodeID{0xee, byte(i)}, data: dataport.New(dataport.Config{})}
	var r atomic.Pointer[relay.Relay]
	var err error
	s.ep, err = control.New(control.Config{
		Process: s.id, Node: s.node, Hostname: fmt.Sprintf("relay-%d", i), Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Ports:   func() []handshake.Port { return topology.Describe(path.Now(f.Ports), f.GIDs) },
		Message: func(c *control.Session, m handshake.Message) { r.Load().Message(c, m) },
		Dead:    func(c *control.Session, _ error) { r.Load().SessionEnded(c) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Relay = relay.New(relay.Config{
		Process: s.id, Node: s.node, Ports: f.Ports, GIDs: f.GIDs, Data: s.data, Clock: clock.Clock{}.WithScale(5), Neighbour: neighbour,
	})
	r.Store(s.Relay)
	t.Cleanup(func() {
		for _, end := range []func() error{s.Close, s.ep.Close, s.data.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// session returns a session of a with b.
func session(t *testing.T, a, b *station) *control.Session {
	t.Helper()
	l, err := b.ep.Listen()
	if err != nil {
		t.Fatal(err)
	}
	raw := l.Handle()
	h, err := handshake.DecodeHandle(&raw)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.ep.Dial(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair connects two transports by one socket through that many relays.
func pair(t *testing.T, relays int, check string) (*conn.Sender, *conn.Receiver, []*station, *transporttest.Log) {
	t.Helper()
	var log transporttest.Log
	from, to := transporttest.NewTCP(t, 1, log.Takes(slog.LevelInfo)), transporttest.NewTCP(t, 1)
	f := from.Paths()
	s0, r0 := transporttest.Connect(t, from, to)
	defer transporttest.CloseBoth(t, s0, r0) // until then the session stays
	peer := f.PortsOf(s0.Session)

	next := map[handshake.ProcessID]*control.Session{}
	var stations []*station
	route := &lane.Route{}
	for i := range relays + 1 {
		st := newStation(t, i, f, func(_ context.Context, p handshake.ProcessID, _ uint8) (*control.Session, error) {
			return next[p], nil
		})
		if stations = append(stations, st); i > 0 {
			next[st.id] = session(t, stations[i-1], st)
			route.Via = append(route.Via, handshake.Hop{Process: st.id, Node: st.node})
			route.Names = append(route.Names, fmt.Sprintf("relay-%d", i))
		}
	}
	l, h := transporttest.Listen(t, to)
	last, err := stations[relays].ep.Dial(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	next[last.Peer().Process] = last
	own := f.Ports[0].Now()
	port := tcp.NewPort(*own, 0, tcp.Options{Check: check, Data: stations[0].data, Circuits: stations[0].Relay})
	plan := []lane.Spec{{Port: port, From: own.GIDs[0], Peer: peer[0], To: peer[0].Addrs[0].Addr, Weight: 1, Route: route}}

	s := conn.NewSender(f.Env, s0.Session, f.NewID(), 64<<10)
	b := &s.Conn
	err = f.Add(b)
	if err == nil {
		_, err = b.Establish(t.Context(), plan, &handshake.Open{
			Conn: b.ID, Listen: h.Listen, Proof: handshake.Proof(h.Secret, b.Session.ID(), h.Listen, b.ID),
		})
	}
	if err != nil {
		t.Fatal(b.Abort(err), b.Lanes()[0].Why())
	}
	var r *conn.Receiver
	transporttest.Await(t, "the connection", func() bool {
		if r, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return r != nil
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return s, r, stations, &log
}

// The messages of a connection pass over a socket through relays: every byte arrives at its place, the path is shown,
// and the circuits end with the connection.
func TestMessages(t *testing.T) {
	for _, tt := range []struct {
		relays int
		check  string
		terms  string
	}{
		{1, tcp.CheckOff, " through relay-1"},
		{2, tcp.CheckOn, " checked through relay-1 and relay-2"},
	} {
		t.Run(fmt.Sprint(tt.relays), func(t *testing.T) {
			s, r, stations, _ := pair(t, tt.relays, tt.check)
			terms := s.Lanes()[0].Carrier.Terms()
			theirs := r.Lanes()[0].Carrier.Terms()
			if !strings.HasPrefix(terms, "tcp ") || !strings.HasSuffix(terms, tt.terms) || theirs != terms {
				t.Errorf("the lane is %q, and %q to the receiver, want one %q", terms, theirs, tt.terms)
			}
			const most = 3<<20 + 11
			sm, sb := transporttest.Memory(t, most)
			rm, rb := transporttest.Memory(t, most)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
			total := 0
			for i, size := range []int{0, 1, 8, 4095, 64 << 10, 1 << 20, most} {
				transporttest.Fill(sb, i)
				clear(rb)
				recv := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, most, 0, rg))
				sizes := transporttest.Both(t, "a message", transporttest.Isend(t, s, sm, 0, size, 0, sg), recv)
				if sizes[1] != (conn.Sizes{uint32(size)}) || !bytes.Equal(rb[:size], sb[:size]) || slices.ContainsFunc(rb[size:], func(b byte) bool { return b != 0 }) {
					t.Fatalf("a message of %d bytes has not come as it was: %v", size, sizes)
				}
				total += size
			}
			transporttest.CloseBoth(t, s, r)
			for _, st := range stations[1:] {
				transporttest.Await(t, "the circuit's end", func() bool { return st.Stats().Now == 0 })
				if n := st.Stats(); n.Carried != 1 || n.Forth < uint64(total) {
					t.Errorf("a relay counts %+v, want 1 circuit and %d bytes at least", n, total)
				}
			}
		})
	}
}

// The reason with which a relay drops a circuit is reported for the lane.
func TestDropped(t *testing.T) {
	s, r, stations, log := pair(t, 2, tcp.CheckOff)
	if err := stations[2].Close(); err != nil {
		t.Fatal(err)
	}
	transporttest.Await(t, "the word of it", func() bool {
		return log.Count("through relay-1 and relay-2: the circuit is gone: relay-2: its process ends") > 0
	})
	transporttest.CloseBoth(t, s, r)
}
