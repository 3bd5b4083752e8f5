package circuit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/circuit"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/topology"
)

// above is the message layer and the owner of a lane. It records the calls.
type above struct {
	memory   uintptr // where parts go, 4 KiB of it
	region   *lane.Region
	arrived  []int64
	dropped  int
	granted  []uint64
	refuse   bool // parts
	mu       sync.Mutex
	evidence error
	failed   error
}

func (a *above) Delivered(*lane.Lane, int, int) {}
func (a *above) Place(_ *lane.Lane, _ uint32, offset uint64, size uint32) (uintptr, *lane.Region, bool) {
	if a.refuse || offset+uint64(size) > 1<<20 {
		a.Fail(errors.New("refused"))
		return 0, nil, false
	}
	return a.memory + uintptr(offset), a.region, true
}
func (a *above) Dropped(*lane.Lane, uint32)                 { a.dropped++ }
func (a *above) Arrived(_ *lane.Lane, _ uint32, size int64) { a.arrived = append(a.arrived, size) }
func (a *above) Granted(seq uint64, _ []lane.Grant) error {
	if seq > lane.Window {
		return errors.New("out of turn")
	}
	a.granted = append(a.granted, seq)
	return nil
}
func (a *above) Regranted(*lane.Lane, uint8)          {}
func (a *above) Eager(*lane.Lane, lane.Eager, []byte) {}
func (a *above) EagerMatched(lane.EagerMatch) error   { return nil }
func (a *above) PortDown(lane.Port)                   {}
func (a *above) Suspect(*lane.Lane, error)            {}
func (a *above) Fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = errors.Join(a.failed, err)
}
func (a *above) ReportFailure(_ *lane.Lane, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.evidence == nil {
		a.evidence = err
	}
}

// relayed is a lane's end and the relay next to it, which sends whatever a test makes it send.
type relayed struct {
	*above
	lane   *lane.Lane
	domain lane.Domain
	half   *hop.Endpoint
	mem    *ibv.Memory
	mr     *ibv.MR
	cq     *ibv.CQ
	wc     []ibv.WC
	frame  []byte
	ring   handshake.Ring // of the relay, which the end writes, or reads
	out    hop.Window
}

// newRelayed creates an end in service, the sender's or the receiver's.
func newRelayed(t *testing.T, sending bool) *relayed {
	t.Helper()
	s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
	t.Cleanup(func() { transporttest.CloseBoth(t, s, r) })
	l0 := s.Lanes()[0]
	p := l0.Port.(*verbs.Port)
	k := &relayed{above: &above{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const receives = hop.TowardsSender
	var err error
	k.mem, err = ibv.Alloc(4 << 20)
	must(err)
	k.mr, err = p.PD().RegMR(k.mem.Addr(), uintptr(k.mem.Len()), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE|ibv.IBV_ACCESS_REMOTE_READ)
	must(err)
	k.cq, err = p.Context().CreateCQ(hop.Completions(receives), nil)
	must(err)
	k.half, err = hop.NewEndpoint(p.PD(), k.cq, receives, 0)
	must(err)
	k.wc, k.frame = ibv.Carve[ibv.WC](k.mem, 16), ibv.Carve[byte](k.mem, 1<<16)
	ring := ibv.Carve[byte](k.mem, hop.MaxRing)
	k.ring = handshake.Ring{Base: uint64(ibv.AddrOf(&ring[0])), Key: k.mr.RKey(), Size: hop.MaxRing}
	_, err = p.Init(k.half.QP, ibv.IBV_ACCESS_REMOTE_WRITE|ibv.IBV_ACCESS_REMOTE_READ)
	must(err)
	must(k.half.PostReceives(receives))
	k.out = hop.NewWindow(handshake.Ring{}, hop.Forth, hop.ForthUndelivered)
	user := ibv.Carve[byte](k.mem, 1<<20)
	k.memory, k.region = ibv.AddrOf(&user[0]), &lane.Region{LKeys: [lane.MaxDomains]uint32{k.mr.LKey()}}
	var half handshake.Lane
	p.Half(&half, l0.From, k.half.Num(), 77)
	half.Token = hop.Reads

	to := &beside{ring: k.ring, half: half, from: l0.From}
	conn := &lane.Shared{ID: 9, Sending: sending, Session: s.Session, Sink: k.above, Owner: k.above}
	k.domain, err = circuit.NewPort(p, circuit.Options{Circuits: to, GIDs: topology.AnyGID}).Open(conn, 0, nil)
	must(err)
	k.lane = lane.New(conn, 0, lane.Spec{Port: k.domain.Port(), From: l0.From, Peer: l0.Peer, Route: &lane.Route{Via: make([]handshake.Hop, 1), Names: []string{"b"}}})
	k.lane.Carrier, err = k.domain.NewLane(k.lane)
	must(err)
	must(k.lane.Carrier.Connect(t.Context(), handshake.Lane{Token: 5}, 0))
	theirs := to.theirs
	if !sending {
		answer, err := to.arrive(t.Context(), &handshake.CircuitDeliver{Half: half, Read: k.ring, Write: k.ring}, func(string) {})
		must(err)
		theirs = answer.Half
	}
	theirs.Addr = l0.From.Addr
	_, err = p.Join(k.half.QP, verbs.Link{From: l0.From, Remote: theirs, PSN: 77, Begun: 1, Answered: hop.Reads})
	must(err)
	k.lane.Enter(lane.Connected)
	k.lane.Enter(lane.Up)
	t.Cleanup(func() {
		k.lane.Deactivate()
		if err := errors.Join(k.lane.Carrier.Close(), k.domain.Close(), k.half.Close(), k.cq.Close(), k.mr.Close(), k.mem.Free()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// beside is the relay from which a lane's end requests a circuit, or which opens one to it.
type beside struct {
	ring   handshake.Ring
	half   handshake.Lane
	from   topology.Address
	theirs handshake.Lane
	arrive lane.Deliver
}

func (b *beside) OpenCircuit(_ context.Context, _ uint8, m *handshake.CircuitOpen, _, _ func(error)) (*lane.OpenedCircuit, error) {
	b.theirs = m.Half
	return &lane.OpenedCircuit{CircuitOpened: &handshake.CircuitOpened{Room: b.ring.Size, Half: b.half, Write: b.ring}, From: b.from, Drop: func(string) {}}, nil
}

func (b *beside) Expect(_ uint64, arrive lane.Deliver, _ func(error)) error {
	b.arrive = arrive
	return nil
}
func (b *beside) Cancel(uint64) {}

// say sends the end a frame of so many bytes, and polls.
func (k *relayed) say(t *testing.T, place uint32, h hop.Header, bytes int) {
	t.Helper()
	k.send(t, place, h, bytes)
	k.poll(t)
}

// send sends the end a frame without polling the end.
func (k *relayed) send(t *testing.T, place uint32, h hop.Header, bytes int) {
	t.Helper()
	h.Encode(k.frame)
	if err := k.half.Frame(&k.out, 0, place, hop.Piece{Addr: ibv.AddrOf(&k.frame[0]), Length: bytes, Key: k.mr.LKey()}, hop.Piece{}); err != nil {
		t.Fatal(err)
	}
	transporttest.Settle(t)
}

// poll polls both sides.
func (k *relayed) poll(t *testing.T) {
	t.Helper()
	k.look(t)
	k.domain.Poll(true)
}

// look polls the relay, and reports whether there were events.
func (k *relayed) look(t *testing.T) bool {
	t.Helper()
	n, err := k.cq.Poll(k.wc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		work, _, _ := hop.WorkOf(k.wc[i].WRID)
		k.half.Polled(work)
	}
	return n > 0
}

// part returns the header of a part's frame.
func part(seq uint64, kind hop.Kind, length, size uint32) hop.Header {
	return hop.Header{Seq: seq, Kind: kind, Length: length, Socket: [2]uint64{uint64(size) << 32, 0}}
}

// A frame that a relay, or the sender through it, must not send to a receiver breaks the lane and not the
// connection.
func TestHostileToReceiver(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(*testing.T, *relayed)
		want string
	}{
		{"before its turn", func(t *testing.T, k *relayed) { k.say(t, 0, part(2, hop.Begin, 0, 0), 64) }, "frame 2 arrived, 1 is next"},
		{"half a header", func(t *testing.T, k *relayed) { k.say(t, 0, part(1, hop.Begin, 0, 0), 32) }, "a frame of 32 bytes"},
		{"fewer bytes", func(t *testing.T, k *relayed) { k.say(t, 0, part(1, hop.Begin, 100, 100), 163) }, "of 100 bytes arrived with 99"},
		{"more of no part", func(t *testing.T, k *relayed) { k.say(t, 0, part(1, hop.More, 8, 8), 72) }, "was not begun"},
		{"more of another", func(t *testing.T, k *relayed) {
			k.say(t, 0, part(1, hop.Begin, 8, 16), 72)
			k.say(t, 0, part(2, hop.More, 8, 17), 72)
		}, "was not begun"},
		{"a part within a part", func(t *testing.T, k *relayed) {
			k.say(t, 0, part(1, hop.Begin, 8, 16), 72)
			k.say(t, 0, part(2, hop.Begin, 8, 16), 72)
		}, "8 bytes of another are missing"},
		{"more than the part has", func(t *testing.T, k *relayed) { k.say(t, 0, part(1, hop.Begin, 16, 8), 80) }, "16 bytes of a part of which 8 are missing"},
		{"nothing of a part", func(t *testing.T, k *relayed) { k.say(t, 0, part(1, hop.Begin, 0, 8), 64) }, "0 bytes of a part of which 8 are missing"},
		{"outside the ring", func(t *testing.T, k *relayed) {
			k.say(t, hop.MaxRing/hop.Unit-1, part(1, hop.Begin, 4096, 4096), 64)
		}, "outside the ring"},
		{"a grant", func(t *testing.T, k *relayed) { k.say(t, 0, hop.Header{Seq: 1, Kind: hop.Grant}, 64) }, "belongs to the other direction"},
		{"another's proof", func(t *testing.T, k *relayed) {
			k.say(t, 0, hop.Header{Seq: 1, Kind: hop.Probe, Socket: [2]uint64{5}}, 64)
		}, "of another lane"},
		{"a credit for nothing", func(t *testing.T, k *relayed) {
			if err := k.half.SendCredit(1, 1, 1); err != nil {
				t.Fatal(err)
			}
			k.poll(t)
		}, "of 0 frames sent 1 were freed"},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			k := newRelayed(t, false)
			tt.say(t, k)
			transporttest.Await(t, "the lane's end", func() bool { k.poll(t); return k.evidence != nil })
			if !errors.Is(k.evidence, fault.ErrLane) || errors.Is(k.evidence, fault.ErrProtocol) || !strings.Contains(k.evidence.Error(), tt.want) || k.failed != nil {
				t.Errorf("the lane broke with %v, want %q; the connection: %v", k.evidence, tt.want, k.failed)
			}
		}))
	}
}

// A part that has begun to arrive when its lane breaks is reported as dropped, once none of its bytes can
// arrive any more.
func TestDropped(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newRelayed(t, false)
		k.say(t, 0, part(1, hop.Begin, 8, 8), 72)
		k.say(t, 0, part(2, hop.Begin, 4096, 8192), 64)
		transporttest.Await(t, "a part", func() bool { k.poll(t); return len(k.arrived) == 1 })
		k.lane.Fail(errors.New("said the test"))
		if err := k.lane.Carrier.Stop(); err != nil {
			t.Fatal(err)
		}
		transporttest.Await(t, "rest", k.lane.Carrier.Drained)
		if k.dropped != 1 || len(k.arrived) != 1 {
			t.Errorf("%d parts dropped, arrived %v", k.dropped, k.arrived)
		}
	})
}

// HasPendingOutput stays true until the last relay has the credit, because only a poll detects that the credit
// has failed.
func TestHasPendingOutput(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		for _, deaf := range []bool{false, true} {
			k := newRelayed(t, false)
			k.send(t, 0, part(1, hop.Begin, 8, 8), 72)
			transporttest.Await(t, "the frame to go", func() bool { return k.look(t) })
			if deaf {
				if err := k.half.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			transporttest.Await(t, "the part", func() bool { k.domain.Poll(true); return len(k.arrived) == 1 })
			if deaf {
				for range 100 {
					transporttest.WorldOf(t).Sleep(time.Microsecond)
					if k.domain.Poll(true); !k.lane.Carrier.HasPendingOutput() && k.evidence == nil { // the adapter may have given up by now
						t.Fatal("a relay that is deaf has been told")
					}
				}
				continue
			}
			transporttest.Await(t, "that nothing is owed", func() bool { k.domain.Poll(true); return !k.lane.Carrier.HasPendingOutput() })
			if k.evidence != nil {
				t.Errorf("the lane broke: %v", k.evidence)
			}
		}
	})
}

// A frame that must not be sent to a sender breaks the lane and not the connection.
func TestHostileToSender(t *testing.T) {
	grant := func(seq, first uint64, length uint32) hop.Header {
		return hop.Header{Seq: seq, Kind: hop.Grant, Length: length, Socket: [2]uint64{first, 1}}
	}
	for _, tt := range []struct {
		name string
		say  func(*testing.T, *relayed)
		want string
	}{
		{"a part", func(t *testing.T, k *relayed) { k.say(t, 0, part(1, hop.Begin, 8, 8), 72) }, "belongs to the other direction"},
		{"before its turn", func(t *testing.T, k *relayed) { k.say(t, 0, grant(2, 1|1<<8, 8), 72) }, "frame 2 arrived"},
		{"a grant of nothing", func(t *testing.T, k *relayed) { k.say(t, 0, grant(1, 1, 0), 64) }, "a grant 0x1 of 0 bytes"},
		{"a grant of nine", func(t *testing.T, k *relayed) { k.say(t, 0, grant(1, 1|9<<8, 64), 128) }, "a grant 0x901"},
		{"a grant too short", func(t *testing.T, k *relayed) { k.say(t, 0, grant(1, 1|2<<8, 8), 72) }, "a grant 0x201 of 8 bytes"},
		{"a grant out of turn", func(t *testing.T, k *relayed) {
			h := grant(1, 1|1<<8, 8)
			h.Socket[1] = 1 << 40
			k.say(t, 0, h, 72)
		}, "out of turn"},
		{"too much", func(t *testing.T, k *relayed) { k.say(t, 0, grant(1, 1|8<<8, 256), 320) }, ""}, // for the adapter
		{"delivered before it was sent", func(t *testing.T, k *relayed) {
			if err := k.half.SendCredit(0, 1, 1); err != nil {
				t.Fatal(err)
			}
			k.poll(t)
		}, "and 1 delivered"},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			k := newRelayed(t, true)
			tt.say(t, k)
			transporttest.Await(t, "the lane's end", func() bool { k.poll(t); return k.evidence != nil })
			if !errors.Is(k.evidence, fault.ErrLane) || !strings.Contains(k.evidence.Error(), tt.want) || k.failed != nil {
				t.Errorf("the lane broke with %v, want %q; the connection: %v", k.evidence, tt.want, k.failed)
			}
		}))
	}
}
