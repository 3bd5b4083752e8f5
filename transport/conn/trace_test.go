package conn_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// told is what a watch knows of a request in the end.
type told struct {
	Sending bool
	Steps   [lane.MaxSubs]uintptr
	Bytes   [lane.MaxSubs]int
}

// A watch is notified of every part of every message, with the lane that carries it, and in the last
// notification all parts have ended. What the watch writes into a trace stays there until then.
func TestTrace(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		got := map[uint64]told{}
		w := conn.NewWatch(func(tr *conn.Trace, over bool) {
			all := told{Sending: tr.Sending, Steps: tr.Steps}
			for i := range tr.Parts {
				p := &tr.Parts[i]
				all.Bytes[p.Message] += p.Bytes
				if p.Lane.Conn.Sending != tr.Sending || p.Lane.Carrier.Number() <= 0 {
					t.Errorf("a part on %v, whose number is %d", p.Lane, p.Lane.Carrier.Number())
				}
				if over && !p.Ended || p.Notified != (p.Event != 0) {
					t.Errorf("over: %v, and %+v", over, *p)
				}
				p.Notified, p.Event = true, 7
			}
			if _, again := got[tr.Name]; again {
				t.Errorf("told again of request %d", tr.Name)
			}
			if over {
				got[tr.Name] = all
			}
		})
		s.Watch(w)
		r.Watch(w)
		sizes := []int{0, 100, 65536, min(2<<20, transporttest.Most(s))}
		each := sizes[len(sizes)-1]
		sm, _ := transporttest.Memory(t, each)
		rm, _ := transporttest.Memory(t, len(sizes)*each)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		for range 3 {
			clear(got)
			want := map[uint64]told{}
			var bufs []conn.Buffer
			var group told
			for i, size := range sizes {
				bufs = append(bufs, transporttest.Buffer(rm, i*each, each, int32(i), rg))
				group.Steps[i], group.Bytes[i] = uintptr(i+1), size
				want[uint64(i)] = told{true, [lane.MaxSubs]uintptr{5}, [lane.MaxSubs]int{size}}
			}
			want[uint64(len(sizes))] = group
			all := []*conn.Request{transporttest.Irecv(t, r, bufs...)}
			all[0].Trace().Name, all[0].Trace().Steps = uint64(len(sizes)), group.Steps
			for i, size := range sizes {
				q := transporttest.Isend(t, s, sm, 0, size, int32(i), sg)
				q.Trace().Name, q.Trace().Steps[0] = uint64(i), 5
				all = append(all, q)
			}
			transporttest.Both(t, "the group", all...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, q := range all {
				if q.Trace() != nil {
					t.Error("a request that is done has a trace")
				}
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A watch gets the traces of one request in 256 of a connection after Sample, and of all after All.
func TestSample(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		defer transporttest.CloseBoth(t, s, r)
		requests := map[bool]int{} // by whether they are sends
		w := conn.NewWatch(func(tr *conn.Trace, over bool) {
			if over {
				requests[tr.Sending]++
			}
		})
		s.Watch(w)
		r.Watch(w)
		sm, _ := transporttest.Memory(t, 64)
		rm, _ := transporttest.Memory(t, 64)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		const messages = 512
		for _, tt := range []struct {
			name  string
			begin func()
			want  int
		}{{"at first", func() {}, messages}, {"a sample", w.Sample, messages / 256}, {"all", w.All, messages}} {
			clear(requests)
			tt.begin()
			for range messages {
				rq := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, 64, 0, rg))
				transporttest.Both(t, "a message", rq, transporttest.Isend(t, s, sm, 0, 64, 0, sg))
			}
			if diff := cmp.Diff(map[bool]int{false: tt.want, true: tt.want}, requests); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	})
}
