package tcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
)

// pipe is a receiver's lane whose sender's end the test holds.
func pipe(t *testing.T) (r *conn.Receiver, send func([]byte)) {
	t.Helper()
	s, r := transporttest.PairTCP(t, 1)
	t.Cleanup(func() { transporttest.CloseBoth(t, s, r) })
	return r, func(b []byte) { say(t, s, b) }
}

// say sends bytes over the first socket of a connection.
func say(t *testing.T, c end, b []byte) {
	t.Helper()
	m, out := transporttest.Memory(t, len(b))
	copy(out, b)
	sent := 0
	transporttest.Await(t, "room for all bytes", func() bool {
		n, errno := sockets(c)[0].Stream().Send(m.Addr()+uintptr(sent), len(b)-sent)
		if errno != 0 && errno != unix.EAGAIN {
			t.Fatal(errno)
		}
		sent += max(n, 0)
		return sent == len(b)
	})
}

// Whatever a peer sends, no byte is written outside a granted buffer, and a wrong frame ends the connection.
func TestHostileParts(t *testing.T) {
	const size = 4096
	good := lane.Imm{Slot: 1, Last: 1}
	frame := tcp.PartFrame
	body := bytes.Repeat([]byte{0xee}, size)
	whole := append(frame(good, 100, 0), body[:100]...)
	tests := []struct {
		name string
		sent []byte
		want string
	}{
		{"put into a window that was never opened", tcp.HexBytes(t, "23000000 01000000 0000000000000000"), "a put of 1 bytes into window 8; windows up to 7 were opened"},
		{"put into window 0", tcp.HexBytes(t, "03000000 01000000 0000000000000000"), "a put of 1 bytes into window 0; windows up to 7 were opened"},
		{"put into a window that has ended", tcp.HexBytes(t, "0f000000 01000000 0000000000000000"), "a put of 1 bytes into window 3, which has ended"},
		{"put beyond the end of a window", tcp.HexBytes(t, "1f000000 02000000 ff0f000000000000"), "a put of 2 bytes at 4095 into window 7, which has 4096 bytes"},
		{"put at an offset that wraps", tcp.HexBytes(t, "1f000000 02000000 ffffffffffffffff"), "into window 7, which has 4096 bytes"},
		{"put of a length that wraps", tcp.HexBytes(t, "1f000000 ffffffff 0800000000000000"), "into window 7, which has 4096 bytes"},
		{"eager message too long", tcp.HexBytes(t, "05000000 01040000 00000000 01000000"), "eager message of 1025 bytes; at most 1024 are allowed"},
		{"eager message 0", tcp.HexBytes(t, "01000000 00000000 00000000 01000000"), "eager message 0 arrived after 0 were received"},
		{"eager message too far on", tcp.HexBytes(t, "45000000 00000000 00000000 01000000"), "eager message 17 arrived after 0 were received"},
		{"eager message twice", tcp.HexBytes(t, "09000000 00000000 00000000 01000000 09000000 00000000 00000000 01000000"), "eager message 2 arrived after 0 were received: it is out of order, or arrived twice"},
		{"eager message for no receive", tcp.HexBytes(t, "05000000 00000000 00000000 00000000"), "eager message 1 is for a receive from 0 on"},
		{"eager message for a receive to come", tcp.HexBytes(t, "05000000 00000000 00000000 03000000"), "eager message 1 is for a receive from 3 on; 2 is next"},
		{"eager message, and its receive's part", append(tcp.HexBytes(t, "05000000 00000000 00000000 01000000"), frame(good, 0, 0)...), "no receive outstanding"},
		{"a part, and an eager message behind it", append(frame(lane.Imm{Slot: 1, Last: 1}, 0, 0), tcp.HexBytes(t, "09000000 00000000 00000000 01000000 05000000 00000000 00000000 00000000")...), "from 0 on"},
		{"question that says more", tcp.HexBytes(t, "02000000 01000000 00000000 00000000"), "asks for grants has 1 and 0x0 where zeros belong"},
		{"part beyond the last", frame(lane.Imm{Slot: 1, Part: 2, Last: 1}, 0, 0), "malformed"},
		{"slot without a receive", frame(lane.Imm{Slot: 2}, 0, 0), "no receive outstanding"},
		{"sub-receive beyond the group", frame(lane.Imm{Slot: 1, Sub: 1}, 0, 0), "has 1 buffers"},
		{"plain writes", frame(lane.Imm{Slot: 1, Writes: 1}, 0, 0), "plain writes"},
		{"too long", frame(good, size+1, 0), "for a buffer of 4096"},
		{"beyond the end", frame(good, 1, size), "for a buffer of 4096"},
		{"offset that wraps", frame(good, 2, ^uint64(1)), "for a buffer of 4096"},
		{"brief signal", frame(lane.Imm{Slot: 1, Writes: 5}, 0, ^uint64(0)), "a brief signal for a receive that takes messages"},
		{"length that wraps", frame(good, ^uint32(0), 8), "for a buffer of 4096"},
		{"a part twice", append(bytes.Clone(whole), whole...), "begun before"},
		{"another number of parts", append(bytes.Clone(whole), frame(lane.Imm{Slot: 1, Part: 1, Last: 2}, 0, 0)...), "number of parts changed"},
		{"more than the buffer in all", append(append(append(bytes.Clone(whole), frame(lane.Imm{Slot: 1, Part: 1, Last: 1}, size, 0)...), body...), whole...), "bytes for a buffer"},
		{"after the last part", append(append(append(bytes.Clone(whole), frame(lane.Imm{Slot: 1, Part: 1, Last: 1}, 10, 100)...), body[:10]...), whole...), "no receive outstanding"},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			r, send := pipe(t)
			m, b := transporttest.Memory(t, 3*size)
			g := transporttest.Register(t, r, m)
			q := transporttest.Irecv(t, r, conn.Buffer{Addr: m.Addr() + size, Size: size, Region: g})
			window, err := r.RegMR(lane.HostMemory, m.Addr()+size, size)
			if err == nil {
				_, err = r.OpenWindow(7, window)
			}
			if err != nil {
				t.Fatal(err)
			}
			send(tt.sent)
			// A wrong frame may be detected only after the receive itself is done.
			transporttest.Await(t, "the end of the connection", func() bool {
				if q == nil {
					q = irecvOrNil(r, conn.Buffer{Addr: m.Addr() + size, Size: size, Region: g})
				} else if ok, _ := q.Test(nil); ok {
					q = nil
				}
				return r.Ended() != nil
			})
			if err := r.Ended(); !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want one about %q", err, tt.want)
			}
			if !bytes.Equal(b[:size], make([]byte, size)) || !bytes.Equal(b[2*size:], make([]byte, size)) {
				t.Error("memory outside the buffer was written")
			}
		}))
	}
}

func irecvOrNil(r *conn.Receiver, b conn.Buffer) *conn.Request {
	q, err := r.Irecv([]conn.Buffer{b})
	if err != nil {
		return nil
	}
	return q
}

// A sender refuses a grant that is out of order, and an acknowledgement of parts that it has not sent.
func TestHostileReturns(t *testing.T) {
	tests := []struct {
		name, sent, want string
	}{
		{"unknown kind", "04 01 000000000000 0100000000000000", "frame of kind 4; 1 to 3 are known"},
		{"word of no eager message", "03 01 00 00 01000000 0000000000000000", "eager message 0 is reported in its buffer; only 0 were sent"},
		{"word of an eager message that was not sent", "03 01 00 00 01000000 0100000000000000", "eager message 1 is reported in its buffer; only 0 were sent"},
		{"word of a buffer that there is not", "03 02 02 00 01000000 0100000000000000", "in buffer 3 of 2"},
		{"reserved bits", "01 01 000000000001 0100000000000000", "000000000001 where zeros belong"},
		{"none", "01 00 000000000000 0100000000000000", "names 0 buffers"},
		{"nine", "01 09 000000000000 0100000000000000", "names 9 buffers"},
		{"sequence 0", "01 01 000000000000 0000000000000000 00000000 00000000", "grant 0 is out of order; 1 is next"},
		{"beyond the window", "01 01 000000000000 0101000000000000 00000000 00000000", "grant 257 is out of order"},
		{"twice", "01 01 000000000000 0100000000000000 01000000 05000000 01 01 000000000000 0100000000000000 00000000 00000000", "grant 1 is out of order"},
		{"acknowledgement of nothing", "02 00 000000000000 0000000000000000", "0 parts are acknowledged; 0 were acknowledged before, and 0 were sent"},
		{"acknowledgement of what was not sent", "02 00 000000000000 0100000000000000", "1 parts are acknowledged; 0 were acknowledged before, and 0 were sent"},
		{"acknowledgement with a buffer", "02 01 000000000000 0000000000000000", "names 1 buffers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.PairTCP(t, 1)
			m, _ := transporttest.Memory(t, lane.EagerSize+1)
			g := transporttest.Register(t, s, m)
			say(t, r, tcp.HexBytes(t, tt.sent))
			var err error
			transporttest.Await(t, "the error", func() bool {
				_, err = s.Isend(m.Addr(), lane.EagerSize+1, 77, g)
				return err != nil
			})
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want one about %q", err, tt.want)
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// An acknowledgement whose count decreases, stays equal or exceeds the parts that were sent ends the lane; it
// changes no part's delivery.
func TestHostileAcks(t *testing.T) {
	const each = 3 // parts on every lane
	for _, count := range []uint64{0, 1, each + 1, 1<<64 - 1} {
		t.Run(fmt.Sprint(count), transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.PairTCP(t, 2, oneCable)
			m, _ := transporttest.Memory(t, 8)
			sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
			var sent []*conn.Request
			for range each * len(s.Lanes()) {
				transporttest.Irecv(t, r, conn.Buffer{Addr: m.Addr(), Size: 8, Region: rg})
			}
			settle(t)
			for range each * len(s.Lanes()) { // of which the receiver does not look at any
				sent = append(sent, transporttest.Isend(t, s, m, 0, 8, 0, sg))
			}
			say(t, r, append(tcp.AckFrame(1), tcp.AckFrame(count)...))
			want := fmt.Sprintf("%d parts are acknowledged; 1 were acknowledged before, and %d were sent", count, each)
			transporttest.Done(t, "the first send", sent[0])
			for _, q := range sent[1:] {
				transporttest.Await(t, "the error", func() bool {
					ok, err := q.Test(nil)
					if ok || err != nil && (!errors.Is(err, fault.ErrPeer) || !strings.Contains(err.Error(), want)) {
						t.Fatalf("done %v, error %v; want one about %q", ok, err, want)
					}
					return err != nil
				})
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}
