package datapath

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A thread sends and another receives, others register memory and look at the lanes, and a lane breaks, all at the same time. The race
// detector sees it: a simulation, in which one goroutine follows another, shows it nothing.
func TestThreads(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		const messages, room, outstanding = 400, 1 << 16, 8
		sizes := []int{8, 3000, 0, room, 100}
		sm, source := transporttest.Memory(t, room)
		rm, sink := transporttest.Memory(t, room*outstanding)
		other, _ := transporttest.Memory(t, room)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(source, 1)

		over := make(chan struct{})
		var beside, traffic sync.WaitGroup
		during := func(f func()) {
			beside.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
						f()
						runtime.Gosched()
					}
				}
			})
		}
		for _, c := range []interface {
			RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error)
			DeregMR(*lane.Region) error
		}{s, r} {
			during(func() {
				g, err := c.RegMR(lane.HostMemory, other.Addr(), room)
				if err == nil {
					err = c.DeregMR(g)
				}
				if err != nil {
					t.Errorf("memory that is registered beside traffic: %v", err)
				}
			})
		}
		during(func() {
			b := &s.Conn
			b.Lock()
			defer b.Unlock()
			for _, l := range b.Lanes() {
				_ = l.Carrier.Terms()
			}
		})

		traffic.Go(func() {
			move(t, messages, outstanding, func(i int) (*conn.Request, error) {
				if i == messages/2 {
					breakOne(s)
				}
				return s.Isend(sm.Addr(), sizes[i%len(sizes)], 1, sg)
			}, func(int, conn.Sizes) {})
		})
		traffic.Go(func() {
			move(t, messages, outstanding, func(i int) (*conn.Request, error) {
				to := rm.Addr() + uintptr(i%outstanding*room)
				return r.Irecv([]conn.Buffer{{Addr: to, Size: room, Tag: 1, Region: rg}})
			}, func(i int, got conn.Sizes) {
				n, at := sizes[i%len(sizes)], i%outstanding*room
				if int(got[0]) != n || !slices.Equal(source[:n], sink[at:at+n]) {
					t.Errorf("message %d has %d bytes, want %d, or others than were sent", i, got[0], n)
				}
			})
		})
		traffic.Wait()
		close(over)
		beside.Wait()
		transporttest.CloseBoth(t, s, r)
	})
}

// move posts messages in order, so many at a time, and calls done for each that is. It ends where the test has failed.
func move(t *testing.T, messages, outstanding int, post func(int) (*conn.Request, error), done func(int, conn.Sizes)) {
	var open []*conn.Request
	for next, first := 0, 0; first < messages && !t.Failed(); runtime.Gosched() {
		if next < messages && len(open) < outstanding {
			q, err := post(next)
			if err != nil {
				t.Errorf("message %d: %v", next, err)
				return
			}
			if q != nil {
				open = append(open, q)
				next++
			}
		}
		if len(open) == 0 {
			continue
		}
		var sizes conn.Sizes
		ok, err := open[0].Test(&sizes)
		if err != nil {
			t.Errorf("message %d: %v", first, err)
			return
		}
		if ok {
			done(first, sizes)
			open = open[1:]
			first++
		}
	}
}

// breakOne breaks the first of several lanes.
func breakOne(s *conn.Sender) {
	b := &s.Conn
	b.Lock()
	defer b.Unlock()
	if all := b.Lanes(); len(all) > 1 && all[0].InService() {
		all[0].Break(fmt.Errorf("%w: the test breaks it", fault.ErrLane))
	}
}
