package conn_test

// The tests in this file run over lanes of every kind.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// Messages of every size arrive whole, and nothing after them is written. All lanes carry the large ones. Over
// queue pairs, one of these is sent in writes of 4096 bytes.
func TestSizes(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		room := 9 << 20 // enough for all lanes to carry some of it
		if slices.Equal(transporttest.Kinds(&s.Conn), []lane.Kind{lane.Verbs}) {
			room = transporttest.Most(s)
		}
		sm, sb := transporttest.Memory(t, room)
		rm, rb := transporttest.Memory(t, room+256)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		zeros := make([]byte, len(rb))
		for i, size := range []int{0, 1, 7, 8, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 65535, 65536, 65537, 100001, 1 << 17, 1<<17 + 1, 1<<19 + 3, 1<<19 + 17, 1 << 20, room} {
			transporttest.Fill(sb[:size], i)
			clear(rb)
			rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: size + 100, Tag: 5, Region: rg})
			sq := transporttest.Isend(t, s, sm, 0, size, 5, sg)
			want := conn.Sizes{uint32(size)}
			if diff := cmp.Diff([]conn.Sizes{want, want}, transporttest.Both(t, fmt.Sprintf("message of %d", size), sq, rq)); diff != "" {
				t.Errorf("size %d: sent and received (-want +got):\n%s", size, diff)
			}
			if !bytes.Equal(sb[:size], rb[:size]) {
				t.Errorf("size %d: the bytes differ", size)
			}
			if !bytes.Equal(rb[size:], zeros[size:]) {
				t.Errorf("size %d: bytes beyond it were written", size)
			}
		}
		for _, l := range slices.Concat(s.Lanes(), r.Lanes()) {
			if l.Bytes.Value() == 0 {
				t.Errorf("%v carried nothing", l)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// The messages of a group go to the buffers of their tags, in whatever order they are sent.
func TestGroup(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		seq := uint64(0)
		for _, tt := range []struct {
			each  int
			order func(n, k int) int // which of n buffers is the k-th sent
			size  func(i int) int
		}{
			{8192, func(n, k int) int {
				if n == 5 {
					return n - 1 - k
				}
				return (k*5 + 3) % n // every number once, as 5 and n have no common factor
			}, func(i int) int { return 8192 - i }},
			{200 << 10, func(n, k int) int { return n - 1 - k }, func(i int) int {
				if i == 2 {
					return 0
				}
				return 200<<10 - i
			}},
		} {
			sm, sb := transporttest.Memory(t, lane.MaxSubs*tt.each)
			rm, rb := transporttest.Memory(t, lane.MaxSubs*tt.each)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
			om, _ := transporttest.Memory(t, lane.EagerSize+1)
			og := transporttest.Register(t, s, om)
			for n := 1; n <= lane.MaxSubs; n++ {
				transporttest.Fill(sb, n)
				clear(rb)
				var bufs []conn.Buffer
				for i := range n {
					bufs = append(bufs, conn.Buffer{Addr: rm.Addr() + uintptr(i*tt.each), Size: tt.each, Tag: int32(100 + i), Region: rg})
				}
				all := []*conn.Request{transporttest.Irecv(t, r, bufs...)}
				seq++
				transporttest.Await(t, "the group's grant", func() bool {
					if q, err := s.Isend(om.Addr(), lane.EagerSize+1, 99, og); q != nil || err != nil {
						t.Fatalf("a send with a tag nobody waits for: %v, %v", q, err)
					}
					return lane.Acquire(&s.Ring.Slot(seq)[0].Seq) == seq
				})
				if q, err := s.Isend(om.Addr(), lane.EagerSize+1, 99, og); q != nil || err != nil {
					t.Fatalf("a send with a tag nobody waits for: %v, %v", q, err)
				}
				for k := range n {
					i := tt.order(n, k)
					all = append(all, transporttest.Isend(t, s, sm, i*tt.each, tt.size(i), int32(100+i), sg))
				}
				group := transporttest.Both(t, "group", all...)[0]
				for i := range n {
					size := tt.size(i)
					if got := int(group[i]); got != size {
						t.Errorf("group of %d: buffer %d has %d bytes, want %d", n, i, got, size)
					}
					if !bytes.Equal(rb[i*tt.each:i*tt.each+size], sb[i*tt.each:i*tt.each+size]) {
						t.Errorf("group of %d: buffer %d differs", n, i)
					}
				}
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A full window of receives gets messages of every size up to 96 KiB, all in flight at the same time, whose
// requests are tested in random order.
func TestMany(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		rng := rand.New(rand.NewPCG(1, 2))
		const most, memory = 96 << 10, 6 << 20
		sm, sb := transporttest.Memory(t, memory)
		rm, rb := transporttest.Memory(t, memory)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		for round := range 3 {
			transporttest.Fill(sb, round)
			clear(rb)
			ends := make([]int, lane.Window+1) // message i is between i and i+1
			for i := range lane.Window {
				ends[i+1] = ends[i] + rng.IntN(most>>rng.IntN(8)+1)
			}
			var all []*conn.Request
			for i := range lane.Window {
				all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, ends[i], ends[i+1]-ends[i], 0, rg)))
			}
			if q, err := r.Irecv([]conn.Buffer{{Addr: rm.Addr(), Size: 1, Region: rg}}); q != nil || err != nil {
				t.Fatalf("receive beyond the window: %v, %v", q, err)
			}
			for i := range lane.Window {
				all = append(all, transporttest.Isend(t, s, sm, ends[i], ends[i+1]-ends[i], 0, sg))
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			transporttest.Both(t, "all messages", all...)
			end := ends[lane.Window]
			if !bytes.Equal(rb[:end], sb[:end]) || !bytes.Equal(rb[end:], make([]byte, memory-end)) {
				t.Fatalf("round %d: the messages differ", round)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}
