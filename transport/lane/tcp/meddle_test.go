package tcp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/internet"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/sock"
)

// A lane is authenticated if either side requires it, and the log says so.
func TestCheckAgreed(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		for _, tt := range []struct {
			from, to string
			want     bool
		}{{tcp.CheckOff, tcp.CheckOff, false}, {tcp.CheckOn, tcp.CheckOff, true}, {tcp.CheckOff, tcp.CheckOn, true}, {tcp.CheckOn, tcp.CheckOn, true}} {
			s, r := transporttest.Connect(t, transporttest.NewTCP(t, 1, func(o *transport.Options) { o.TCPCheck = tt.from }), transporttest.NewTCP(t, 1, func(o *transport.Options) { o.TCPCheck = tt.to }))
			for _, k := range slices.Concat(sockets(s), sockets(r)) {
				if out, in := k.Checks(); out != tt.want || in != tt.want || strings.HasSuffix(k.Terms(), " checked") != tt.want {
					t.Errorf("%s to %s: %s, codes %v and %v", tt.from, tt.to, k.Terms(), out, in)
				}
			}
			transporttest.CloseBoth(t, s, r)
		}
	})
}

// frame is a frame that one side of a lane has sent: a header with its code, and the pieces of the payload with
// theirs.
type frame struct {
	kind  string // "part", "grant" or "ack"
	units [][]byte
}

// meddler is a proxy in the middle of every lane of a connection. It passes each frame to alter, which returns
// the frames to forward.
type meddler struct {
	process *internet.Process
	code    int // bytes of a code
	mu      sync.Mutex
	alter   func(frame) []frame
	wg      sync.WaitGroup
	ends    []sock.Conn
}

// newMeddler creates a meddler, which ends with the test.
func newMeddler(t *testing.T, s *conn.Sender, alter func(frame) []frame) *meddler {
	t.Helper()
	m := &meddler{process: transporttest.WorldOf(t).Machines[0].Process("meddler"), code: sockets(s)[0].CodeSize(), alter: alter}
	t.Cleanup(func() {
		for _, c := range m.ends {
			_ = c.Close()
		}
		m.wg.Wait()
	})
	return m
}

// meddle puts a meddler into the middle of a connection.
func meddle(t *testing.T, s *conn.Sender, r *conn.Receiver, alter func(frame) []frame) {
	t.Helper()
	m := newMeddler(t, s, alter)
	for i := range sockets(s) {
		from, to := m.take(t, s, i), m.take(t, r, i)
		m.wg.Go(func() { m.relay(from, to, m.readPart) })
		m.wg.Go(func() { m.relay(to, from, m.readReturn) })
	}
}

// take gives the socket of a lane another stream and returns its other end.
func (m *meddler) take(t *testing.T, c end, i int) sock.Conn {
	t.Helper()
	lo := netip.MustParseAddrPort("127.0.0.1:0")
	ln, err := m.process.Listen(lo, "", sock.PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := m.process.Dial(t.Context(), sock.From{}, netip.AddrPortFrom(lo.Addr(), ln.Addr().Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	other, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	m.ends = append(m.ends, other)
	stream, err := near.Stream()
	if err != nil {
		t.Fatal(err)
	}
	c.Lock()
	defer c.Unlock()
	if err := sockets(c)[i].Replace(stream); err != nil {
		t.Fatal(err)
	}
	return other
}

func (m *meddler) relay(from, to sock.Conn, read func(io.Reader) (frame, error)) {
	for {
		f, err := read(from)
		if err != nil {
			_ = to.CloseWrite()
			return
		}
		m.mu.Lock()
		all := m.alter(f)
		m.mu.Unlock()
		for _, f := range all {
			if _, err := to.Write(bytes.Join(f.units, nil)); err != nil {
				return
			}
		}
	}
}

// unit reads the next n bytes and their code.
func (m *meddler) unit(in io.Reader, f *frame, n int) error {
	b := make([]byte, n+m.code)
	_, err := io.ReadFull(in, b)
	f.units = append(f.units, b)
	return err
}

func (m *meddler) readPart(in io.Reader) (frame, error) {
	f := frame{kind: "part"}
	if err := m.unit(in, &f, tcp.FrameHeader); err != nil {
		return f, err
	}
	for left := int(binary.LittleEndian.Uint32(f.units[0][4:])); left > 0; left -= tcp.PieceSize {
		if err := m.unit(in, &f, min(left, tcp.PieceSize)); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (m *meddler) readReturn(in io.Reader) (frame, error) {
	f := frame{kind: "ack"}
	err := m.unit(in, &f, tcp.FrameHeader)
	if err == nil && f.units[0][0] == tcp.KindGrant {
		f.kind = "grant"
		err = m.unit(in, &f, int(f.units[0][1])*tcp.GrantBuffer)
	}
	return f, err
}

// first applies a change to the first frame of a kind only.
func first(kind string, change func(f frame) []frame) func() func(frame) []frame {
	return func() func(frame) []frame {
		done := false
		return func(f frame) []frame {
			if done || f.kind != kind {
				return []frame{f}
			}
			done = true
			return change(f)
		}
	}
}

// flip changes one bit of a unit of the first frame of a kind; a negative unit or byte counts from the end.
func flip(kind string, unit, at int) func() func(frame) []frame {
	return first(kind, func(f frame) []frame {
		u := f.units[(unit+len(f.units))%len(f.units)]
		u[(at+len(u))%len(u)] ^= 0x10
		return []frame{f}
	})
}

// swap exchanges the first two frames of a kind.
func swap(kind string) func() func(frame) []frame {
	return func() func(frame) []frame {
		var held *frame
		done := false
		return func(f frame) []frame {
			switch {
			case done || f.kind != kind:
				return []frame{f}
			case held == nil:
				held = &f
				return nil
			}
			done = true
			return []frame{f, *held}
		}
	}
}

// An authenticated lane whose bytes are changed on the way fails with an error that names the lane and both
// ends. No receive is done with other bytes than were sent; of a message of up to 64 KiB no byte reaches the
// user's buffer.
func TestMeddled(t *testing.T) {
	drop := func(frame) []frame { return nil }
	twice := func(f frame) []frame { return []frame{f, f} }
	const header, part, grant = "the authentication code of a part's header is wrong", "the authentication code of a part's bytes is wrong", "the authentication code of a grant is wrong"
	const back = "the authentication code of a grant's or acknowledgement's header is wrong"
	tests := []struct {
		name  string
		size  int
		alter func() func(frame) []frame
		want  string
	}{
		{"header", 1000, flip("part", 0, 9), header},
		{"length in a header", 1000, flip("part", 0, 4), header},
		{"header's code", 1000, flip("part", 0, -1), header},
		{"one byte", 1, flip("part", 1, 0), part},
		{"small payload", 1000, flip("part", 1, 999), part},
		{"small payload's code", 1000, flip("part", 1, -1), part},
		{"64 KiB", tcp.PieceSize, flip("part", 1, tcp.PieceSize-1), part},
		{"large payload", 5*tcp.PieceSize + 7, flip("part", 3, 77), part},
		{"end of a large payload", 5*tcp.PieceSize + 7, flip("part", -1, 0), part},
		{"code of a large payload", 5*tcp.PieceSize + 7, flip("part", 2, -5), part},
		{"pieces out of order", 5 * tcp.PieceSize, first("part", func(f frame) []frame {
			f.units[1], f.units[2] = f.units[2], f.units[1]
			return []frame{f}
		}), part},
		{"part twice", 1000, first("part", twice), header},
		{"part left out", 2000, first("part", drop), header}, // each lane has others behind it, which short messages might not have
		{"parts out of order", 1000, swap("part"), header},
		{"grant's header", 1000, flip("grant", 0, 8), back},
		{"length in a grant", 1000, flip("grant", 0, 1), back},
		{"grant's buffer", 1000, flip("grant", 1, 0), grant},
		{"grant twice", 1000, first("grant", twice), back},
		{"grant left out", 1000, first("grant", drop), back},
		{"grants out of order", 1000, swap("grant"), back},
		{"acknowledgement", 1000, flip("ack", 0, 8), back},
		{"acknowledgement twice", 1000, first("ack", twice), back},
		{"part sent back", 16, func() func(frame) []frame {
			var sent *frame
			return func(f frame) []frame {
				switch {
				case f.kind == "part" && sent == nil:
					sent = &f
				case f.kind == "ack" && sent != nil:
					return []frame{{"ack", sent.units[:1]}}
				}
				return []frame{f}
			}
		}, back},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.PairTCP(t, 1, transporttest.Checked)
			meddle(t, s, r, tt.alter())
			own := sockets(s)
			err := exchangeUntilError(t, s, r, tt.size, true)
			if !strings.Contains(err.Error(), s.String()) && !strings.Contains(err.Error(), r.String()) { // each end has its own pid in it
				t.Errorf("error %v names neither %v nor %v", err, s, r)
			}
			for _, want := range []string{tt.want, "lane ", s.Session.LocalName(), r.Session.LocalName()} {
				if !errors.Is(err, fault.ErrPeer) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %q in it", err, want)
				}
			}
			if !slices.ContainsFunc(own, func(k *tcp.Socket) bool { return strings.Contains(err.Error(), k.Terms()) }) {
				t.Errorf("error %v names no lane's addresses", err)
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// Without authentication the same changes complete a receive with other bytes, which shows that TestMeddled
// passes because of the codes.
func TestMeddledUnchecked(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.PairTCP(t, 1)
		meddle(t, s, r, flip("part", 1, 5)())
		if err := exchangeUntilError(t, s, r, 1000, false); err != nil {
			t.Error(err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// found returns the damage that a side has detected itself on one of its lanes, and that took the lane out of
// service.
func found(b *conn.Conn, lanes []*lane.Lane) error {
	b.Lock()
	defer b.Unlock()
	for _, l := range lanes {
		if err := l.Why(); err != nil && strings.Contains(err.Error(), "the authentication code of") && !strings.Contains(err.Error(), "says:") {
			return err
		}
	}
	return nil
}

// exchangeUntilError sends messages of one size. It checks that every receive which is done holds the bytes
// that were sent, and that a small one which is not done is unchanged. Without authentication it checks that
// all messages arrive and that one of them holds other bytes. It returns the error of the side that found the
// damage.
func exchangeUntilError(t *testing.T, s *conn.Sender, r *conn.Receiver, size int, whole bool) error {
	t.Helper()
	const n = 4
	here, there := slices.Clone(s.Lanes()), slices.Clone(r.Lanes()) // others take the places of those that fail
	per := len(here) * n
	sm, sb := transporttest.Memory(t, per*size)
	rm, rb := transporttest.Memory(t, per*size)
	sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
	transporttest.Fill(sb, 3)
	for i := range sb {
		sb[i] |= 1 // no byte is zero
	}
	var sent, got []*conn.Request
	over := func() error {
		if err := found(&r.Conn, there); err != nil {
			return err
		}
		return found(&s.Conn, here)
	}
	differ := 0
	isSent, isDone := make([]bool, per), make([]bool, per)
	test := func(i int) (ok bool) {
		if ok, _ = got[i].Test(nil); ok {
			isDone[i] = true
			if !bytes.Equal(rb[i*size:(i+1)*size], sb[i*size:(i+1)*size]) {
				differ++
			}
		}
		return ok
	}
	for range per {
		if q := irecvOrNil(r, conn.Buffer{Addr: rm.Addr() + uintptr(len(got)*size), Size: size, Region: rg}); q != nil {
			got = append(got, q)
		}
	}
	transporttest.Await(t, "the error, or all messages", func() bool {
		if len(sent) < per {
			if q, _ := s.Isend(sm.Addr()+uintptr(len(sent)*size), size, 0, sg); q != nil {
				sent = append(sent, q)
			}
		}
		left := len(sent) < per
		for i, q := range sent {
			if !isSent[i] {
				isSent[i], _ = q.Test(nil)
				left = left || !isSent[i]
			}
		}
		for i := range got {
			left = !isDone[i] && !test(i) || left
		}
		if !left && whole { // the damage may come behind the last acknowledgement
			const nobodys = 1 // tag
			_, _ = s.Isend(sm.Addr(), 0, nobodys, sg)
		}
		return over() != nil || !left && !whole
	})
	s.Lock() // nothing is sent again: what lies there now is done, or never will be
	r.Lock()
	lies := bytes.Clone(rb)
	r.Unlock()
	for i := range got {
		if b := lies[i*size : (i+1)*size]; whole && size <= tcp.PieceSize && !isDone[i] && !bytes.Equal(b, make([]byte, size)) {
			what := fmt.Sprintf("message %d, of which %d bytes are there, to be done", i, size-bytes.Count(b, []byte{0}))
			transporttest.Await(t, what, func() bool { return test(i) })
		}
	}
	s.Unlock()
	if (differ == 0) != whole {
		t.Errorf("%d messages are done and differ from what was sent", differ)
	}
	return over()
}

// A receive is not done before the kernel accepts its acknowledgement, because no later call might send it.
func TestAcknowledgementWaits(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		m := newMeddler(t, s, nil)
		stuffed := make([]chan int, len(sockets(r))) // how much, once the way back may go on
		t.Cleanup(func() {
			for _, c := range stuffed {
				close(c)
			}
		})
		for i := range sockets(r) {
			from, to := m.take(t, s, i), m.take(t, r, i)
			stuffed[i] = make(chan int, 1)
			m.wg.Go(func() { _, _ = io.Copy(to, from) })
			m.wg.Go(func() {
				if i == 0 { // the grant
					f, err := m.readReturn(to)
					if err != nil {
						return
					}
					_, _ = from.Write(bytes.Join(f.units, nil))
				}
				_, _ = io.CopyN(io.Discard, to, int64(<-stuffed[i]))
				_, _ = io.Copy(from, to)
			})
		}
		sm, sb := transporttest.Memory(t, 2000)
		rm, rb := transporttest.Memory(t, 2000)
		transporttest.Fill(sb, 4)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: 2000, Region: rg})
		sq := transporttest.Isend(t, s, sm, 0, 2000, 0, sg)
		var full []int
		for _, k := range sockets(r) {
			full = append(full, stuff(t, k.Stream()))
		}
		for i := 0; i < 100; {
			ok, err := rq.Test(nil)
			if ok || err != nil {
				t.Fatalf("a receive whose acknowledgement waits: done %v, error %v", ok, err)
			}
			if bytes.Equal(sb[:2000], rb[:2000]) {
				i++
			}
			settle(t)
		}
		for i := range full {
			stuffed[i] <- full[i]
		}
		transporttest.Both(t, "the message", rq, sq)
		transporttest.CloseBoth(t, s, r)
	})
}

// stuff fills the output buffer of a stream that is not read, and returns how much it accepted.
func stuff(t *testing.T, s *sock.Stream) (n int) {
	t.Helper()
	m, b := transporttest.Memory(t, 1<<10)
	for full := 0; full < 100; { // the network makes room for a while
		switch w, errno := s.Send(m.Addr(), len(b)); errno {
		case 0:
			n += w
			full = 0
		case unix.EAGAIN:
			full++
			settle(t)
		default:
			t.Fatal(errno)
		}
	}
	return n
}
