package transporttest

import (
	"context"
	"slices"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/require"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// OverLanes runs a test over lanes of every kind, alone and, unless FULL=1 says otherwise,
// with some of the others. The changes are those of every transport.
func OverLanes(t *testing.T, f func(t *testing.T, s *conn.Sender, r *conn.Receiver), change ...func(*transport.Options)) {
	over := func(kinds ...lane.Kind) func(*testing.T) (*conn.Sender, *conn.Receiver) {
		return func(t *testing.T) (*conn.Sender, *conn.Receiver) {
			return ConnectOver(t, New(t, change...), New(t, change...), kinds...)
		}
	}
	sockets := func(streams int, more ...func(*transport.Options)) func(*testing.T) (*conn.Sender, *conn.Receiver) {
		return func(t *testing.T) (*conn.Sender, *conn.Receiver) {
			return PairTCP(t, streams, slices.Concat(change, more)...)
		}
	}
	for _, tt := range []struct {
		name    string
		kinds   []lane.Kind
		connect func(*testing.T) (*conn.Sender, *conn.Receiver)
		sample  bool
	}{
		{"queue pairs", []lane.Kind{lane.Verbs}, func(t *testing.T) (*conn.Sender, *conn.Receiver) {
			return Connect(t, New(t, change...), New(t, change...))
		}, true},
		{"sockets, 1 stream", []lane.Kind{lane.TCP}, sockets(1), false},
		{"sockets, 4 streams", []lane.Kind{lane.TCP}, sockets(4), false},
		{"sockets, 2 streams, checked", []lane.Kind{lane.TCP}, sockets(2, Checked), true},
		{"a queue pair and a socket", []lane.Kind{lane.Verbs, lane.TCP}, over(lane.Verbs, lane.TCP), false},
		{"a socket and a queue pair", []lane.Kind{lane.TCP, lane.Verbs}, over(lane.TCP, lane.Verbs), true},
		{"circuits", []lane.Kind{lane.Circuit}, over(lane.Circuit, lane.Circuit), true},
		{"a circuit and a socket", []lane.Kind{lane.Circuit, lane.TCP}, over(lane.Circuit, lane.TCP), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "the same test over other lanes")
			}
			run(t, func(t *testing.T) {
				s, r := tt.connect(t)
				for _, c := range []*conn.Conn{&s.Conn, &r.Conn} {
					if kinds := Kinds(c); !slices.Equal(kinds, tt.kinds) {
						t.Fatalf("the lanes are %v, want %v", kinds, tt.kinds)
					}
				}
				f(t, s, r)
			})
		})
	}
}

// Kinds are those of a connection's lanes, in their order, each once for all that follow
// each other.
func Kinds(c *conn.Conn) (kinds []lane.Kind) {
	c.Lock()
	defer c.Unlock()
	for _, l := range c.Lanes() {
		kinds = append(kinds, l.Port.Kind())
	}
	return slices.Compact(kinds)
}

// ComeBack reports whether lanes that fail come back: those of a connection that package path
// has made.
func ComeBack(c *conn.Conn) bool {
	kinds := Kinds(c)
	return len(kinds) == 1 && kinds[0] != lane.Circuit
}

// Most is the largest message of a test: where all lanes are queue pairs one of them
// makes writes of 4096 bytes, of which a part has 256. It is more than sockets take.
func Most(s *conn.Sender) int {
	if slices.Equal(Kinds(&s.Conn), []lane.Kind{lane.Verbs}) {
		return 2 << 20
	}
	if onFabric {
		return 16 << 20
	}
	return 24 * buffer
}

// ConnectOver sets up a connection with one lane of each of those kinds, in that order
// and of one weight, whatever package path would choose.
func ConnectOver(t *testing.T, from, to *transport.Transport, kinds ...lane.Kind) (*conn.Sender, *conn.Receiver) {
	t.Helper()
	return ConnectThrough(t, from, to, nil, kinds...)
}

// ConnectThrough is ConnectOver, with circuits through those relays; nil is one relay.
func ConnectThrough(t *testing.T, from, to *transport.Transport, circuits *Circuits, kinds ...lane.Kind) (*conn.Sender, *conn.Receiver) {
	t.Helper()
	s0, r0 := Connect(t, from, to)
	defer CloseBoth(t, s0, r0) // until then the session stays
	session, f := s0.Session, from.Paths()
	ports, peer := path.Now(f.Ports), f.PortsOf(session)
	candidates := topology.Candidates(ports, peer, f.GIDs)
	var plan []lane.Spec
	for _, k := range kinds {
		carried := k
		if k == lane.Circuit {
			carried = lane.Verbs
		}
		i := slices.IndexFunc(candidates, func(c topology.Candidate) bool { return f.Ports[c.Local].Kind() == carried })
		if i < 0 {
			t.Fatalf("there is no way for a %v", k)
		}
		c := candidates[i]
		plan = append(plan, lane.Spec{
			Port: f.Ports[c.Local], From: ports[c.Local].GIDs[c.LocalGID],
			Peer: peer[c.Remote], To: peer[c.Remote].Addrs[c.RemoteGID].Addr, Weight: 1,
		})
		if k == lane.Circuit {
			if circuits == nil {
				circuits = NewCircuits(t, 1)
			}
			plan[len(plan)-1] = circuits.plan(plan[len(plan)-1], to, f.GIDs)
		}
	}
	l, h := Listen(t, to)
	const threshold = 64 << 10 // as is the default
	s := conn.NewSender(f.Env, session, f.NewID(), threshold)
	b := &s.Conn
	err := f.Add(b)
	if err == nil {
		_, err = b.Establish(context.Background(), plan, &handshake.Open{
			Conn: b.ID, Listen: h.Listen, Proof: handshake.Proof(h.Secret, session.ID(), h.Listen, b.ID),
		})
	}
	if err != nil {
		t.Fatal(b.Abort(err))
	}
	var r *conn.Receiver
	Await(t, "the connection", func() bool {
		if r, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return r != nil
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return s, r
}
