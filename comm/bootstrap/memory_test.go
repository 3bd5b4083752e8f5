package bootstrap_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"ncclmesh/comm/bootstrap"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/fault"
)

// A rank gets an error when an adapter of the rank or of the root cannot register memory, as under a low limit of locked memory,
// whichever registration of the job's start it is. The root goes on: it answers the next attempt.
func TestNoMemoryToRegister(t *testing.T) {
	failed := 0
	for machine, name := range []string{"root", "rank"} {
		for skip := range 8 {
			t.Run(fmt.Sprintf("%s, after %d registrations", name, skip), transporttest.Simulated(func(t *testing.T) {
				hosts := newHosts(t, 2)
				_, id := newRoot(t, hosts[0])
				for _, c := range transporttest.WorldOf(t).Cables {
					c.Adapters[machine].Device.Refuse("reg_mr", syscall.ENOMEM, skip, 1)
				}
				m, err := hosts[1].Join(id, 0, 1, 5*time.Second)
				if err != nil {
					failed++
					transporttest.Heal(t)
					m, err = hosts[1].Join(id, 0, 1, 5*time.Second)
				}
				if err != nil {
					check(t, "the next attempt", err, fault.ErrPeerGone, "rank 0 (node b) is gone: ")
					return
				}
				leave(t, []*bootstrap.Member{m})
			}))
		}
	}
	if failed == 0 {
		t.Error("no registration belonged to the start of the job")
	}
}
