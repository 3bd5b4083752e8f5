package conn_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
)

// A message goes to the first buffer of its tag without a message, in any granted receive, even if earlier
// receives have buffers without messages.
func TestTagsMatchAllThatIsGranted(t *testing.T) {
	const small, large = 64, 3000 // over TCP short messages are eager
	tests := []struct {
		name     string
		receives [][]int32 // tags of the buffers of each, in order
		sends    []int32
	}{
		{"behind a half-matched group", [][]int32{{30, 31}, {40}}, []int32{30, 40, 31}},
		{"before a group", [][]int32{{30, 31}, {40}}, []int32{40, 31, 30}},
		{"before a single receive", [][]int32{{1}, {2}, {3}}, []int32{3, 2, 1}},
		{"the same tags in two groups", [][]int32{{1, 2}, {1, 2}}, []int32{1, 1, 2, 2}},
		{"a tag twice in a group", [][]int32{{5, 6, 5}, {5}}, []int32{5, 5, 5, 6}},
		{"the first last", [][]int32{{1}, {2, 3}, {4}, {2}, {5}}, []int32{2, 3, 4, 2, 5, 1}},
	}
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newTagged(t, s, r, large)
		for _, tt := range tests {
			for _, size := range []int{small, large} {
				t.Logf("%s, %d bytes", tt.name, size)
				h.exchange(tt.receives, tt.sends, func() int { return size })
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// Random receives, with one or more buffers, match sends of their tags in any order.
func TestTagsMatchInAnyOrder(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		const most, rounds = 3000, 100
		rng := rand.New(rand.NewPCG(1, 2))
		h := newTagged(t, s, r, most)
		for range rounds {
			var receives [][]int32
			var sends []int32
			for range 1 + rng.IntN(12) {
				group := make([]int32, 1+rng.IntN(8)*rng.IntN(2))
				for i := range group {
					group[i] = int32(rng.IntN(6))
				}
				receives, sends = append(receives, group), append(sends, group...)
			}
			rng.Shuffle(len(sends), func(i, j int) { sends[i], sends[j] = sends[j], sends[i] })
			h.exchange(receives, sends, func() int { return []int{0, 8, 300, most}[rng.IntN(4)] })
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// tagged is both ends of a connection and memory for the messages of a round.
type tagged struct {
	*endPair
	most int // the most bytes of a message
}

const mostTagged = 96

func newTagged(t *testing.T, s *conn.Sender, r *conn.Receiver, most int) *tagged {
	h := &tagged{&endPair{T: t, s: s, r: r}, most}
	h.sm, h.sb = transporttest.Memory(t, mostTagged*most)
	h.rm, h.rb = transporttest.Memory(t, mostTagged*most)
	h.sg, h.rg = transporttest.Register(t, s, h.sm), transporttest.Register(t, r, h.rm)
	return h
}

// exchange posts receives, sends a message for each of their buffers, and checks that message k of a tag is
// in buffer k of that tag.
func (h *tagged) exchange(receives [][]int32, sends []int32, size func() int) {
	h.Helper()
	type got struct {
		Size    uint32
		Message uint16 // number of the message; 0 if it is empty
	}
	var requests []*conn.Request
	buffers := map[int32][]int{} // of each tag, by number
	n := 0
	clear(h.rb)
	for _, tags := range receives {
		var bufs []conn.Buffer
		for _, tag := range tags {
			buffers[tag] = append(buffers[tag], n)
			bufs = append(bufs, transporttest.Buffer(h.rm, n*h.most, h.most, tag, h.rg))
			n++
		}
		requests = append(requests, transporttest.Irecv(h.T, h.r, bufs...))
	}
	want := make([]got, n)
	for i, tag := range sends {
		b, number := size(), uint16(i+1)
		binary.LittleEndian.PutUint16(h.sb[i*h.most:], number)
		requests = append(requests, transporttest.Isend(h.T, h.s, h.sm, i*h.most, b, tag, h.sg))
		if want[buffers[tag][0]] = (got{uint32(b), number}); b == 0 {
			want[buffers[tag][0]].Message = 0
		}
		buffers[tag] = buffers[tag][1:]
	}
	sizes := transporttest.Both(h.T, "all messages", requests...)
	var have []got
	for i, tags := range receives {
		for k := range tags {
			have = append(have, got{sizes[i][k], binary.LittleEndian.Uint16(h.rb[len(have)*h.most:])})
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		h.Fatalf("receives of tags %v, sends of %v (-want +got):\n%s", receives, sends, diff)
	}
}
