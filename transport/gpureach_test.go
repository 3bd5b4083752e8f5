package transport_test

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
)

// noDMABufs is a driver some of whose answers are those of a kernel without DMA-BUFs.
type noDMABufs struct{ ibv.Driver }

func (noDMABufs) RegDmabufMR(uintptr, uint64, uint64, uint64, int, uint32) (ibv.MRInfo, syscall.Errno) {
	return ibv.MRInfo{}, syscall.EOPNOTSUPP
}

func TestGPUReach(t *testing.T) {
	none, err := topology.ParseInterfaces("=none")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*transport.Options)
		want   transport.GPUReach
	}{
		{"auto", func(*transport.Options) {}, transport.GPUReach{TCP: true}},
		{"auto, and no interface for TCP", func(o *transport.Options) { o.LaneIfs = none }, transport.GPUReach{TCP: true}},
		{"rdma", func(o *transport.Options) { o.Transport = transport.TransportRDMA }, transport.GPUReach{}},
		{"tcp", func(o *transport.Options) { o.Transport = transport.TransportTCP }, transport.GPUReach{TCP: true}},
		{"no DMA-BUFs", func(o *transport.Options) {
			o.Transport, o.Machine.Verbs = transport.TransportRDMA, noDMABufs{o.Machine.Verbs}
		}, transport.GPUReach{NoDMABufs: []string{"rdma0", "rdma1"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) {
				tr := transporttest.New(t, tt.change)
				for range 2 {
					if diff := cmp.Diff(tt.want, tr.GPUReach()); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}
