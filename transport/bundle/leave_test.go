package bundle_test

import (
	"errors"
	"fmt"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/bundle"
	"ncclmesh/transport/lane"
)

// A lane that breaks in its first moments in service, before its set-up knows that it is,
// leaves as any other does: what it carried is sent again.
func TestBreaksAtOnce(t *testing.T) {
	for _, sending := range []bool{true, false} {
		t.Run(fmt.Sprintf("sending %v", sending), func(t *testing.T) {
			transporttest.Leaks(t)
			s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
			ends := []*bundle.Bundle{s.Bundle(), r.Bundle()}
			b := ends[1]
			if sending {
				b = ends[0]
			}
			broken := make([]*lane.Lane, len(ends)) // both halves
			for i, end := range ends {
				end.Lock()
				broken[i] = end.Lanes()[1]
				end.Unlock()
			}
			b.ServeLate(func() {
				b.Lock()
				defer b.Unlock()
				b.Lanes()[1].Break(errors.New("said the test"))
			})
			for i, end := range ends {
				transporttest.Await(t, fmt.Sprintf("half %d to leave", i), func() bool {
					end.Lock()
					defer end.Unlock()
					return broken[i].State() == lane.Stopped
				})
			}
			transporttest.CloseBoth(t, s, r)
		})
	}
}
