package transport_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/path"
)

// A survey validates the paths of every kind, and reports why others fail. A connection uses only the paths that it is
// given.
func TestSurvey(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		l, h := transporttest.Listen(t, b)
		s, err := a.Survey(t.Context(), h)
		if err != nil || len(s.Errs) > 0 {
			t.Fatal(err, s.Errs)
		}
		names := func(ways []path.Path) (all []string) {
			for _, w := range ways {
				all = append(all, a.Ports()[w.Local].Now().Short()+" "+cmp.Or(s.Ports[w.Remote].Device, s.Ports[w.Remote].Netdev))
			}
			slices.Sort(all)
			return all
		}
		if diff := gocmp.Diff([]string{"rdma0:1 rdma0", "rdma1:1 rdma1"}, names(s.RDMA)); diff != "" {
			t.Errorf("over RDMA (-want +got):\n%s", diff)
		}
		if s.Peer != b.Node() || len(s.TCP) == 0 {
			t.Errorf("of %v, over TCP %v, failed %v", s.Peer, names(s.TCP), s.Failed)
		}
		for _, ways := range [][]path.Path{s.RDMA[:1], s.RDMA, s.TCP[:1]} {
			d := a.DialOver(h, ways)
			transporttest.Await(t, "both halves", func() bool {
				send, err := d.Poll()
				if err != nil {
					t.Fatal(err)
				}
				if send == nil {
					return false
				}
				var got []string
				for _, k := range transporttest.Kinds(&send.Conn) {
					got = append(got, k.String())
				}
				want := []string{a.Ports()[ways[0].Local].Kind().String()}
				if n := len(send.Lanes()); !slices.Equal(got, want) || want[0] != "socket" && n != len(ways) {
					t.Errorf("%d lanes of %v over %d ways of %v", n, got, len(ways), want)
				}
				transporttest.Await(t, "its other half", func() bool {
					recv, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					if recv != nil {
						transporttest.CloseBoth(t, send, recv)
					}
					return recv != nil
				})
				return true
			})
		}
		d := a.DialOver(h, nil)
		transporttest.Await(t, "its error", func() bool {
			_, err := d.Poll()
			return err != nil && strings.Contains(err.Error(), "no path to dial over")
		})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A process that only examines the mesh is not found by others, queries on every cable, and ignores its own node.
func TestNeighbours(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a := transporttest.New(t, func(o *transport.Options) { o.Observes, o.TimeScale = true, 0.1 })
		heard, err := a.Neighbours(t.Context())
		if err != nil || len(heard) > 0 {
			t.Errorf("%v, %v", heard, err)
		}
		if diff := gocmp.Diff([]string{"p0", "p1"}, a.Cables()); diff != "" {
			t.Errorf("cables (-want +got):\n%s", diff)
		}
		off := transporttest.New(t, func(o *transport.Options) { o.Relay = transport.RelayOff })
		if _, err := off.Neighbours(t.Context()); err == nil {
			t.Error("one that does not relay has asked")
		}
	})
}
