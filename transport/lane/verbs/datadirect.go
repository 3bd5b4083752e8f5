package verbs

import (
	"cmp"
	"fmt"
	"path/filepath"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
)

// Data Direct: an adapter, from ConnectX-8 on, may have a second PCIe function, which is closer to the GPU. The adapter
// reaches memory of the GPU by this function if the memory is registered for it, by a DMA-BUF.

// findDataDirect looks for the adapter's function for GPU memory.
func (p *Port) findDataDirect() {
	if p.opts.NoDataDirect || !p.takesDMABufs {
		return
	}
	path, err := p.ctx.DataDirectPath()
	switch {
	case err != nil:
		p.opts.Log.Warn(fmt.Sprintf("%v: GPU memory is reached by the adapter's usual PCIe function: %v", p, err))
	case path != "":
		p.dataDirect = filepath.Join(cmp.Or(p.opts.Sysfs, "/sys"), path)
	}
}

// DataDirect returns the path in sysfs of the adapter's function for GPU memory, or "" if there is none.
func (p *Port) DataDirect() string { return p.dataDirect }

// UseDataDirect makes the adapter reach GPU memory by that function, if it is registered by a DMA-BUF. It must be called
// before memory is registered.
func (p *Port) UseDataDirect() { p.usesDataDirect = true }

// registerDMABuf registers the range m of a DMA-BUF.
func (p *Port) registerDMABuf(m lane.Memory, access uint32) (*ibv.MR, error) {
	register := p.pd.RegDmaBufMR
	if p.usesDataDirect && m.Kind == lane.GPUMemory {
		register = p.pd.RegDataDirectMR
	}
	return register(m.DMABuf.Offset, uint64(m.Length), uint64(m.Addr), m.DMABuf.FD, access)
}
