package conn_test

import (
	"errors"
	"fmt"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A lane that fails after it came into service and before its set-up is finished is drained like any other:
// what it carried is sent again.
func TestBreaksAtOnce(t *testing.T) {
	for at, which := range []string{"sender", "receiver"} {
		t.Run(which, transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
			ends := []*conn.Conn{&s.Conn, &r.Conn}
			broken := make([]*lane.Lane, len(ends)) // one for each end
			for i, end := range ends {
				end.Lock()
				broken[i] = end.Lanes()[1]
				end.Unlock()
			}
			ends[at].FinishLate(func() {
				ends[at].Lock()
				defer ends[at].Unlock()
				broken[at].Break(errors.New("said the test"))
			})
			for i, end := range ends {
				transporttest.Await(t, fmt.Sprintf("half %d to leave", i), func() bool {
					end.Lock()
					defer end.Unlock()
					return broken[i].State() == lane.Stopped
				})
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// The index of a lane that has broken stays taken until what it carried is settled, also before the failure has been handled:
// a lane that joined there would make the connection forget what was lost.
func TestBrokenLaneKeepsItsIndex(t *testing.T) {
	for at, which := range []string{"sender", "receiver"} {
		t.Run(which, transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
			end := []*conn.Conn{&s.Conn, &r.Conn}[at]
			end.Lock() // so that the event goroutine waits
			l := end.Lanes()[1]
			l.Break(fmt.Errorf("%w: said the test", fault.ErrLane))
			if end.IsVacant(1) {
				t.Errorf("%v: %v is %v, and its index is vacant", end, l, l.State())
			}
			end.Unlock()
			transporttest.Await(t, "the lane to be settled, or replaced", func() bool {
				end.Lock()
				defer end.Unlock()
				return end.IsVacant(1) || end.Lanes()[1] != l
			})
			transporttest.CloseBoth(t, s, r)
		}))
	}
}
