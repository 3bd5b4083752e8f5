package conn_test

import (
	"errors"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
)

// One side closes in the middle of a transfer: the other side's requests fail, and no device touches memory
// that was released.
func TestCloseOutstanding(t *testing.T) {
	for _, side := range []string{"sender", "receiver"} {
		t.Run(side, func(t *testing.T) {
			transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
				b := transporttest.Block(t, s, r, transporttest.Most(s))
				left := b.Recv
				var err error
				if side == "sender" {
					err = s.Close()
				} else {
					err, left = r.Close(), b.Send
				}
				if err != nil {
					t.Fatal(err)
				}
				transporttest.Await(t, "the other side's error", func() bool {
					ok, err := left.Test(nil)
					if ok || err != nil && !errors.Is(err, fault.ErrPeer) {
						t.Fatalf("done %v, error %v", ok, err)
					}
					return err != nil
				})
				transporttest.CloseBoth(t, s, r)
			})
		})
	}
}
