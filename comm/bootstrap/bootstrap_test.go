package bootstrap_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ncclmesh/comm/bootstrap"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
)

const key = "sixteen letters!"

// newHost makes a process with a transport, on the machine after that of the one before.
func newHost(t *testing.T) *bootstrap.Host {
	t.Helper()
	h := &bootstrap.Host{Key: key}
	h.Transport = transporttest.New(t, func(o *transport.Options) {
		h.Network, h.Clock, h.Random, h.Log = o.Machine.Network, o.Machine.Clock, o.Machine.Random, o.Log
	})
	return h
}

func newHosts(t *testing.T, n int) (all []*bootstrap.Host) {
	for range n {
		all = append(all, newHost(t))
	}
	return all
}

// newRoot makes a root in a process, which is closed when the test ends.
func newRoot(t *testing.T, h *bootstrap.Host) (*bootstrap.Root, bootstrap.ID) {
	t.Helper()
	r, err := h.NewRoot(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, r.ID()
}

// result is what a rank's function returned.
type result struct {
	rank int
	err  error
}

// each calls f for every rank at once, and waits for all.
func each(t *testing.T, n int, f func(rank int) error) (errs []error) {
	t.Helper()
	results := make(chan result, n)
	for rank := range n {
		go func() { results <- result{rank, f(rank)} }()
	}
	errs = make([]error, n)
	for range n {
		r := <-results
		errs[r.rank] = r.err
	}
	return errs
}

// join makes every host join the job, the first as rank 0.
func join(t *testing.T, id bootstrap.ID, hosts []*bootstrap.Host) []*bootstrap.Member {
	t.Helper()
	members := make([]*bootstrap.Member, len(hosts))
	for rank, err := range each(t, len(hosts), func(rank int) (err error) {
		members[rank], err = hosts[rank].Join(id, rank, len(hosts), bootstrap.DefaultTimeout)
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return members
}

func leave(t *testing.T, members []*bootstrap.Member) {
	t.Helper()
	for rank, err := range each(t, len(members), func(rank int) error { return members[rank].Leave() }) {
		if err != nil {
			t.Errorf("rank %d leaves: %v", rank, err)
		}
	}
}

func TestAllGatherAndBarrier(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), transporttest.Simulated(func(t *testing.T) {
			hosts := newHosts(t, n)
			_, id := newRoot(t, hosts[0])
			members := join(t, id, hosts)
			for _, size := range []int{1, 8, 100 << 10} { // the last one takes several messages of the connection
				errs := each(t, n, func(rank int) error {
					data, want := make([]byte, n*size), make([]byte, n*size)
					for i := range want {
						want[i] = byte(i*7 + i/size)
					}
					copy(data[rank*size:], want[rank*size:(rank+1)*size])
					if err := members[rank].AllGather(data, time.Minute); err != nil {
						return err
					}
					if !bytes.Equal(want, data) {
						return fmt.Errorf("all-gather of %d bytes: the bytes differ", size)
					}
					return members[rank].Barrier(time.Minute)
				})
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
			}
			leave(t, members)
		}))
	}
}

// A barrier returns when the last rank has called it.
func TestBarrierWaitsForAll(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		_, id := newRoot(t, hosts[2])
		members := join(t, id, hosts)
		begun := time.Now()
		var returned [3]time.Duration
		for _, err := range each(t, 3, func(rank int) error {
			hosts[rank].Clock.Sleep(time.Duration(rank) * time.Second)
			err := members[rank].Barrier(time.Minute)
			returned[rank] = time.Since(begun)
			return err
		}) {
			if err != nil {
				t.Error(err)
			}
		}
		for rank, d := range returned {
			if d < 2*time.Second || d > 3*time.Second {
				t.Errorf("rank %d returns after %v, want 2 s", rank, d)
			}
		}
		leave(t, members)
	})
}

// check fails the test if the error is not of the kind, or its text has not all the words.
func check(t *testing.T, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: error %v, want %v", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: error %q, want %q in it", what, err, w)
		}
	}
}

// The error of a time-out names the ranks that are missing, for the ranks that came in time and for one that comes late.
func TestMissingRanks(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		_, id := newRoot(t, hosts[0])
		begun := time.Now()
		errs := each(t, 2, func(i int) error {
			_, err := hosts[i].Join(id, i*2, 5, 10*time.Second)
			return err
		})
		for i, err := range errs {
			check(t, fmt.Sprintf("rank %d", i*2), err, fault.ErrUnreachable, "ranks 1, 3 and 4 of 5 have not joined within 10s")
		}
		if d := time.Since(begun); d > 12*time.Second {
			t.Errorf("the ranks waited for %v, want 10 s", d)
		}
		_, err := hosts[2].Join(id, 3, 5, 10*time.Second)
		check(t, "the late rank", err, fault.ErrUnreachable, "of 5 have not joined within 10s")
	})
}

func TestRankTwice(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		_, id := newRoot(t, hosts[0])
		members := make([]*bootstrap.Member, 2)
		errs := each(t, 3, func(i int) (err error) {
			switch i {
			case 0:
				members[1], err = hosts[1].Join(id, 1, 2, time.Minute)
			case 1:
				hosts[2].Clock.Sleep(time.Second)
				_, err = hosts[2].Join(id, 1, 2, time.Minute)
			case 2:
				hosts[0].Clock.Sleep(5 * time.Second)
				members[0], err = hosts[0].Join(id, 0, 2, time.Minute)
			}
			return err
		})
		if err := errors.Join(errs[0], errs[2]); err != nil {
			t.Fatalf("the two ranks: %v", err)
		}
		check(t, "the second rank 1", errs[1], fault.ErrUsage, "rank 1 has already joined, from node", "b")
		leave(t, members)
	})
}

func TestSizeMismatch(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		_, id := newRoot(t, hosts[0])
		for i, err := range each(t, 2, func(i int) error {
			hosts[i].Clock.Sleep(time.Duration(i) * time.Second)
			_, err := hosts[i].Join(id, i, 3+i, time.Minute)
			return err
		}) {
			check(t, fmt.Sprintf("rank %d", i), err, fault.ErrUsage, "rank 1", "was started for a job of 4 ranks, but the ranks that came before for 3")
		}
	})
}

func TestBadArguments(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		h := newHost(t)
		_, id := newRoot(t, h)
		for _, tt := range []struct{ rank, size int }{{-1, 1}, {1, 1}, {0, 0}, {0, bootstrap.MaxRanks + 1}} {
			_, err := h.Join(id, tt.rank, tt.size, time.Second)
			check(t, fmt.Sprint(tt), err, fault.ErrUsage, "rank ")
		}
		_, err := h.Join(bootstrap.ID{1, 2, 3}, 0, 1, time.Second)
		check(t, "an id of nothing", err, fault.ErrUsage, "unique id")
		m, err := h.Join(id, 0, 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "all-gather of nothing", m.AllGather(nil, time.Second), fault.ErrUsage, "0 bytes")
		leave(t, []*bootstrap.Member{m})
		check(t, "barrier after leaving", m.Barrier(time.Second), fault.ErrUsage, "left")
		if err := m.Leave(); err != nil {
			t.Errorf("leaving twice: %v", err)
		}
	})
}

// An ID of a job that has begun, has ended, or whose process is gone is one clear error.
func TestOtherJobs(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		root, id := newRoot(t, hosts[0])
		members := join(t, id, hosts[:2])
		_, err := hosts[2].Join(id, 1, 2, time.Minute)
		check(t, "a job that has begun", err, fault.ErrUsage, "rank 1 has already joined")
		leave(t, members)
		root.Close()
		_, err = hosts[2].Join(id, 1, 2, time.Minute)
		check(t, "a job that has ended", err, fault.ErrPeerRefused, "closed", "the unique id is of a job that has begun or has ended")

		_, id = newRoot(t, hosts[1])
		transporttest.Kill(t, hosts[1].Transport)
		_, err = hosts[2].Join(id, 1, 2, time.Minute)
		check(t, "a process that is gone", err, fault.ErrPeer, "the process that made the unique id is gone")
	})
}

// Ranks that make different calls all get an error that names them.
func TestDifferentCalls(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		_, id := newRoot(t, hosts[0])
		members := join(t, id, hosts)
		for rank, err := range each(t, 2, func(rank int) error {
			hosts[rank].Clock.Sleep(time.Duration(rank) * time.Second)
			if rank == 0 {
				return members[rank].AllGather(make([]byte, 16), time.Minute)
			}
			return members[rank].AllGather(make([]byte, 32), time.Minute)
		}) {
			check(t, fmt.Sprintf("rank %d", rank), err, fault.ErrUsage, "rank 1 calls an all-gather of 16 bytes, but rank 0 an all-gather of 8 bytes")
		}
		for rank, err := range each(t, 2, func(rank int) error {
			hosts[rank].Clock.Sleep(time.Duration(rank) * time.Second)
			if rank == 0 {
				return members[rank].Barrier(time.Minute)
			}
			return members[rank].AllGather(make([]byte, 2), time.Minute)
		}) {
			check(t, fmt.Sprintf("rank %d", rank), err, fault.ErrUsage, "rank 1 calls an all-gather of 1 bytes, but rank 0 a barrier")
		}
		for _, err := range each(t, 2, func(rank int) error { return members[rank].Barrier(time.Minute) }) {
			if err != nil {
				t.Errorf("the next barrier: %v", err)
			}
		}
		leave(t, members)
	})
}

// The time-out of a call names the ranks that have not made it; one that makes it late gets the same error, and the next call
// succeeds.
func TestCallTimesOut(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		_, id := newRoot(t, hosts[0])
		members := join(t, id, hosts)
		for rank, err := range each(t, 3, func(rank int) error {
			if rank == 1 {
				hosts[rank].Clock.Sleep(5 * time.Second)
			}
			return members[rank].Barrier(2 * time.Second)
		}) {
			check(t, fmt.Sprintf("rank %d", rank), err, fault.ErrUnreachable, "a barrier: peer not reachable: rank 1 has not made the call within 2s")
		}
		for _, err := range each(t, 3, func(rank int) error { return members[rank].Barrier(time.Minute) }) {
			if err != nil {
				t.Errorf("the next barrier: %v", err)
			}
		}
		leave(t, members)
	})
}

// The death of a rank, or of the process with the root, ends the calls that wait.
func TestDeaths(t *testing.T) {
	for _, tt := range []struct {
		name   string
		victim int
		words  []string
	}{
		{"a rank", 2, []string{"rank 2 (node a", "is gone"}},
		{"the root", 1, []string{"the root is gone"}},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			hosts := newHosts(t, 3)
			_, id := newRoot(t, hosts[1])
			members := join(t, id, hosts)
			begun := time.Now()
			errs := each(t, 3, func(rank int) error {
				if rank == tt.victim {
					hosts[rank].Clock.Sleep(time.Second)
					transporttest.Kill(t, hosts[rank].Transport)
					return nil
				}
				return members[rank].Barrier(time.Hour)
			})
			for rank, err := range errs {
				if rank != tt.victim {
					check(t, fmt.Sprintf("rank %d", rank), err, fault.ErrPeer, tt.words...)
				}
			}
			if d := time.Since(begun); d > 30*time.Second {
				t.Errorf("the error comes after %v", d)
			}
			for rank, m := range members {
				if err := m.Leave(); err != nil && rank != tt.victim {
					t.Errorf("rank %d leaves: %v", rank, err)
				}
			}
		}))
	}
}

// A rank that leaves ends the calls of the others, at once.
func TestLeaving(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		_, id := newRoot(t, hosts[0])
		members := join(t, id, hosts)
		errs := each(t, 3, func(rank int) error {
			if rank == 1 {
				return members[rank].Leave()
			}
			return members[rank].Barrier(time.Hour)
		})
		if errs[1] != nil {
			t.Error(errs[1])
		}
		check(t, "rank 0", errs[0], fault.ErrPeerGone, "rank 1", "has left the job")
		check(t, "rank 2", errs[2], fault.ErrPeerGone, "rank 1", "has left the job")
		leave(t, members)
	})
}
