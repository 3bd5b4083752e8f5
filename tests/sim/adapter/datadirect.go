package adapter

import (
	"syscall"

	"ncclmesh/ibv"
)

// KnowDataDirect gives the device a second PCIe function, by which it reaches GPU memory: its path below /sys. It is to be
// called before a process opens the device.
func (d *Device) KnowDataDirect(path string) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.dataDirect = path
}

// DataDirectRegions is how many regions are registered for the device's function for GPU memory.
func (d *Device) DataDirectRegions() (n int) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	for key, r := range d.byKey {
		if r.dataDirect && key == r.lkey {
			n++
		}
	}
	return n
}

func (p *Process) DataDirectPath(ctx uintptr) (string, syscall.Errno) {
	d := find(p, p.contexts, ctx).device
	errno := p.enter(d, "mlx5dv_get_data_direct_sysfs_path")
	defer p.fabric.mu.Unlock()
	if errno == 0 && d.dataDirect == "" {
		errno = syscall.ENODEV
	}
	return d.dataDirect, errno
}

func (p *Process) RegDataDirectMR(pd uintptr, offset, length, iova uint64, fd int, access uint32) (ibv.MRInfo, syscall.Errno) {
	d := find(p, p.pds, pd).context.device
	errno := p.enter(d, "mlx5dv_reg_dmabuf_mr")
	if errno == 0 && d.dataDirect == "" {
		errno = syscall.EINVAL // as Linux says where the device has no such function
	}
	p.fabric.mu.Unlock()
	if errno != 0 {
		return ibv.MRInfo{}, errno
	}
	info, errno := p.RegDmabufMR(pd, offset, length, iova, fd, access)
	if errno == 0 {
		p.fabric.mu.Lock()
		p.mrs[info.Handle].dataDirect = true
		p.fabric.mu.Unlock()
	}
	return info, errno
}
