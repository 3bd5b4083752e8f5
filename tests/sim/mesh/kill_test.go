package mesh_test

import (
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// told is how long after the death of a process its peers may go on without an error: as long as lanes are waited for, and
// a little for what comes before and after.
const told = 15 * time.Second

// A process dies, or its machine loses its power. Each of its connections fails at the other end in bounded time, with an error that names its node; all
// others go on to their end, also those that it relayed.
func TestProcessDies(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			s := b.Source("shape")
			transport := []string{"tcp", "auto", "rdma"}[s.Uint64N(3)]
			ring(w, 2+int(s.Uint64N(4)), 1+int(s.Uint64N(2)), transport != "tcp")
			j := w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": transport}, w.Machines...)
			messages, most := 10+int(s.Uint64N(200)), 1<<uint(s.Uint64N(21))
			if s.Chance(0.5) {
				j.Ring(messages, most)
			} else {
				j.All(messages/4+1, most)
			}
			dead := j.Ranks()[s.Uint64N(uint64(len(j.Ranks())))]
			unpowered := s.Chance(0.4)
			var died time.Duration
			b.Source("killer").After(s.Between(0, 2*time.Second), "kill", func() {
				died = b.Now()
				if unpowered {
					dead.PowerOff(dead.Process)
				} else {
					dead.Kill()
				}
			})
			j.Play(5 * time.Minute)
			for _, r := range j.Ranks() {
				if r == dead {
					continue
				}
				for _, f := range r.Broken() {
					if f.Peer() != dead {
						t.Errorf("%v failed, although the process of another rank died: %v", f.Flow, f.Err)
					}
					if f.At-died > told {
						t.Errorf("%v failed %v after the death", f.Flow, f.At-died)
					}
					if !strings.Contains(f.Err.Error(), dead.Name()) {
						t.Errorf("%v failed with an error that does not name %s: %v", f.Flow, dead.Name(), f.Err)
					}
					if !strings.Contains(f.Err.Error(), "ncclRemoteError") {
						t.Errorf("%v failed with an error of the wrong class: %v", f.Flow, f.Err)
					}
				}
			}
			j.End()
			w.Clock.Sleep(time.Minute) // in which the goroutines end that a dead process would not have
			if t.Failed() || testing.Verbose() {
				t.Logf("%s over %d machines; %s died at %v, without power: %v\n%s", transport, len(w.Machines), dead.Name(), died, unpowered, j.Logs())
			}
		})
	})
}
