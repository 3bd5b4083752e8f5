package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

// A PD is a protection domain.
type PD struct {
	ctx  *Context
	life life
	ptr  uintptr
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	pd := &PD{ctx: c}
	if err := pd.life.begin(kindPD, &c.life); err != nil {
		return nil, err
	}
	var errno syscall.Errno
	if pd.ptr, errno = c.lib.driver.AllocPD(c.info.Handle); errno != 0 {
		pd.life.abandon()
		return nil, newError("alloc_pd", c.device.info.Name, 0, errno, "")
	}
	return pd, nil
}

// Close frees the domain.
func (pd *PD) Close() error {
	return pd.life.end("protection domain on "+pd.ctx.device.info.Name, func() error {
		return newError("dealloc_pd", pd.ctx.device.info.Name, 0, pd.ctx.lib.driver.DeallocPD(pd.ptr), "")
	})
}

// An MR is a registered memory region.
type MR struct {
	pd     *PD
	life   life
	info   MRInfo
	addr   uintptr
	length uintptr
}

// RegMR registers memory outside the Go heap. Optional access flags, such as IBV_ACCESS_RELAXED_ORDERING, are dropped where
// the library or the kernel does not know them.
func (pd *PD) RegMR(addr, length uintptr, access uint32) (*MR, error) {
	lib := pd.ctx.lib
	return pd.register(addr, length, func() (MRInfo, error) {
		info, errno := lib.driver.RegMR(pd.ptr, addr, length, access)
		detail := fmt.Sprintf("%d bytes at %#x, access %#x", length, addr, access)
		return info, newError("reg_mr", pd.ctx.device.info.Name, 0, errno, detail+regHint(errno))
	})
}

// RegDmaBufMR registers length bytes from offset of a DMA-BUF; iova is the address that work requests will use for them.
func (pd *PD) RegDmaBufMR(offset, length, iova uint64, fd int, access uint32) (*MR, error) {
	lib := pd.ctx.lib
	if err := lib.lacks("reg_dmabuf_mr", pd.ctx.device.info.Name); err != nil {
		return nil, err
	}
	return pd.register(uintptr(iova), uintptr(length), func() (MRInfo, error) {
		info, errno := lib.driver.RegDmabufMR(pd.ptr, offset, length, iova, fd, access)
		detail := fmt.Sprintf("%d bytes at offset %d of DMA-BUF %d for address %#x, access %#x", length, offset, fd, iova, access)
		return info, newError("reg_dmabuf_mr", pd.ctx.device.info.Name, 0, errno, detail+regHint(errno))
	})
}

// TakesDMABufs reports whether RegDmaBufMR can register the memory of a DMA-BUF. It tries an invalid descriptor: a
// kernel and a device that can do it report a bad descriptor, others report that they do not support the call. It returns false
// if the library has no such verb.
func (pd *PD) TakesDMABufs() bool {
	mr, err := pd.RegDmaBufMR(0, 0, 0, -1, 0)
	if err == nil {
		_ = mr.Close()
		return true
	}
	var e *Error
	return errors.As(err, &e) && !errors.Is(err, ErrNotSupported)
}

func (pd *PD) register(addr, length uintptr, verb func() (MRInfo, error)) (*MR, error) {
	mr := &MR{pd: pd, addr: addr, length: length}
	if err := mr.life.begin(kindMR, &pd.life); err != nil {
		return nil, err
	}
	var err error
	if mr.info, err = verb(); err != nil {
		mr.life.abandon()
		return nil, err
	}
	return mr, nil
}

func regHint(errno syscall.Errno) string {
	switch errno {
	case syscall.ENOMEM, syscall.EPERM, syscall.EAGAIN:
		return "; " + memlockHint()
	case syscall.EFAULT:
		return "; not all of this range is mapped, or writable where the access asks for it"
	}
	return ""
}

// LKey is the key for gather and scatter lists.
func (mr *MR) LKey() uint32 { return mr.info.LKey }

// RKey is the key that a peer needs.
func (mr *MR) RKey() uint32 { return mr.info.RKey }

// Addr is the address of the first byte in work requests.
func (mr *MR) Addr() uintptr { return mr.addr }

// Close deregisters the region.
func (mr *MR) Close() error {
	dev := mr.pd.ctx.device.info.Name
	return mr.life.end("memory region on "+dev, func() error {
		return newError("dereg_mr", dev, 0, mr.pd.ctx.lib.driver.DeregMR(mr.info.Handle), fmt.Sprintf("%d bytes at %#x", mr.length, mr.addr))
	})
}
