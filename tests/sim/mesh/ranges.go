package mesh

import (
	"ncclmesh/ibv"
	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/draw"
)

// rangeSize is how many bytes a range has at most.
const rangeSize = 1 << 16

// ranges are memory that one end of a connection registers beside its buffers, and gives back, at random while it runs. What is
// registered when the end closes the plugin gives back.
type ranges struct {
	most  int // registered at a time; 0: the end has no such memory
	draws *draw.Stream
	mem   *ibv.Memory
	bytes []byte // of mem
	all   []ncclnet.Handle
}

// step registers a range at times, or gives one back.
func (g *ranges) step(r *Rank, comm ncclnet.Handle) error {
	if g.most == 0 || !g.draws.Chance(0.2) {
		return nil
	}
	if g.mem == nil {
		var err error
		if g.mem, err = ibv.Alloc(rangeSize); err != nil {
			return err
		}
		g.bytes = ibv.Carve[byte](g.mem, rangeSize)
	}
	if n := int(g.draws.Uint64N(uint64(g.most))); n < len(g.all) {
		return g.drop(r, comm, n)
	}
	from := int(g.draws.Uint64N(rangeSize))
	mr, result := r.net.RegMr(comm, ibv.AddrOf(&g.bytes[from]), uintptr(1+g.draws.Uint64N(uint64(rangeSize-from))), ncclnet.NCCL_PTR_HOST)
	if err := r.failed("regMr", result); err != nil {
		return err
	}
	g.all = append(g.all, mr)
	return nil
}

// drop gives back the range of a number.
func (g *ranges) drop(r *Rank, comm ncclnet.Handle, n int) error {
	mr := g.all[n]
	g.all = append(g.all[:n], g.all[n+1:]...)
	return r.failed("deregMr", r.net.DeregMr(comm, mr))
}

// free ends the memory of the ranges. The end has closed.
func (g *ranges) free() error {
	if g.mem == nil {
		return nil
	}
	return g.mem.Free()
}
