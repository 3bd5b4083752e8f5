package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// TestPair is of two machines with two cables, by the kernel's own queue pairs. No lane may be a socket.
func TestPair(t *testing.T) {
	require.Full(t, "tests/lab TestTriangle and tests/sim/mesh TestRDMACablesFail")
	said := newLog()
	s := newSession(t, Pair(), built()...)
	needBuilt(t)
	s.cfg.Env = map[string]string{"NCCL_MESH_TRANSPORT": "rdma"}
	s.cfg.Log = said.add
	s.step(t, "cables go and come", func(t *testing.T, ctx context.Context, l *Lab) error { return s.flap(t, ctx, l, said) })
}

// flap: messages of all sizes, in groups and with tags, for five minutes, or MESH_TEST_SOAK, while one of the two cables or the
// other goes out, or comes in, every 50 ms at random, or every two seconds where machines are emulated; one is in. Every message arrives as it was sent, and no connection ends.
func (s *session) flap(t *testing.T, ctx context.Context, l *Lab, said *log) error {
	length, err := soakTime(5 * time.Minute)
	if err != nil {
		return err
	}
	scale, err := strconv.ParseFloat(l.accel.TimeScale(), 64)
	if err != nil {
		return err
	}
	said.skip()
	job := s.begin(ctx, l, s.mesh.Machines, "--work", "soak", "--max", "1M", "--reopen", "1000000", "--progress", "1", "--duration", fmt.Sprint(length.Seconds()))
	if _, err := said.await(ctx, job, `# soak: \d+ s, `); err != nil {
		return errors.Join(err, job.wait())
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	every := 50 * time.Millisecond
	if scale > 1 {
		every = 2 * time.Second // what a machine that is emulated takes to prove a lane
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	in, changes := [2]bool{true, true}, 0
	for over := false; !over && err == nil; {
		select {
		case <-tick.C:
			if i := rnd.IntN(2); !in[i] || in[1-i] {
				in[i] = !in[i]
				changes++
				err = l.SetCable(s.mesh.Cables[i].Name, in[i])
			}
		case <-job.done:
			over = true
		}
	}
	for _, c := range s.mesh.Cables {
		err = errors.Join(err, l.SetCable(c.Name, true))
	}
	if err = errors.Join(err, job.wait()); err != nil {
		return err
	}
	lost := regexp.MustCompile(`went down; check the cable`).FindAllString(outputs(job.results), -1)
	back := regexp.MustCompile(`has come back`).FindAllString(outputs(job.results), -1)
	t.Logf("%d changes of the cables; lanes were lost %d times, and came back %d times", changes, len(lost), len(back))
	if len(lost) == 0 || len(back) == 0 {
		return fmt.Errorf("no lane was lost, or none came back:\n%s", outputs(job.results))
	}
	return nil
}
