package transport_test

import (
	"errors"
	"strings"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/topology"
)

// A node without free descriptors does not blame its peer.
func TestNoDescriptorForALane(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.NewTCP(t, 1), transporttest.NewTCP(t, 1)
		l, h := transporttest.Listen(t, a)
		first := b.Dial(h)
		var ends []interface{ Close() error }
		transporttest.Await(t, "a first connection", func() bool {
			s, err := first.Poll()
			if err != nil {
				t.Fatal(err)
			}
			if s != nil {
				ends = append(ends, s)
			}
			return s != nil
		})
		transporttest.Await(t, "its other half", func() bool {
			r, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if r != nil {
				ends = append(ends, r)
			}
			return r != nil
		})
		few := transporttest.WorldOf(t).Process(b).Sockets
		few.LimitDescriptors(0) // what is open stays
		var err error
		second := b.Dial(h)
		transporttest.Await(t, "the failure", func() bool {
			_, err = second.Poll()
			return err != nil
		})
		few.LimitDescriptors(1 << 20)
		if errors.Is(err, fault.ErrPeer) || !limit.IsOwn(err) || !strings.Contains(err.Error(), "(ulimit -n)") {
			t.Errorf("%v, want this node's limit and no peer", err)
		}
		transporttest.Await(t, "the peer to hear of it", func() bool {
			_, err = l.Accept()
			return err != nil
		})
		if !errors.Is(err, fault.ErrPeer) {
			t.Errorf("the peer's accept: %v, want ErrPeer", err)
		}
		for _, e := range append(ends, l) {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNoPorts(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hca, err := topology.ParseHCA("mlx9")
		if err != nil {
			t.Fatal(err)
		}
		o := transporttest.Options(t)
		o.HCA, o.Transport = hca, transport.TransportRDMA
		_, err = transport.New(o)
		if want := "NCCL_IB_HCA=mlx9 matches none of the RDMA ports of this node, which are rdma0:1 ("; !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want ErrUsage and %q", err, want)
		}
		o = transporttest.Options(t)
		o.Machine.Source, o.Transport = plainSource(), transport.TransportRDMA
		if _, err = transport.New(o); !errors.Is(err, fault.ErrNoPorts) {
			t.Errorf("error %v, want ErrNoPorts", err)
		}
	})
}
