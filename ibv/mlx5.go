package ibv

import (
	"fmt"
	"sync"
	"syscall"

	"ncclmesh/internal/ccall"
)

// Data Direct: NVIDIA's adapters from ConnectX-8 on may have a second PCIe function, beside the GPU, by which they reach the
// GPU's memory. libmlx5, which libibverbs loads for these adapters, tells of it and registers memory for it.

// mlx5 are functions of libmlx5; 0 where they are missing.
type mlx5 struct {
	mu                               sync.Mutex
	handle                           uintptr // keeps it loaded; 0 until it was found
	dataDirectSysfsPath, regDmabufMR uintptr
}

const (
	mlx5Library = "libmlx5.so.1"
	mlx5Version = "MLX5_1.25" // rdma-core 54

	// mlx5AccessDataDirect is MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT of <infiniband/mlx5dv.h>.
	mlx5AccessDataDirect = 1
)

// find looks the functions up in the libmlx5 that libibverbs has loaded, and returns them. They are 0 while it has loaded
// none, and where that is older. Another libmlx5 is of no use, because it would not know libibverbs' devices.
func (m *mlx5) find() (dataDirectSysfsPath, regDmabufMR uintptr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == 0 {
		if m.handle = ccall.Loaded(mlx5Library); m.handle != 0 {
			m.dataDirectSysfsPath = lookup(m.handle, "mlx5dv_get_data_direct_sysfs_path", mlx5Version)
			m.regDmabufMR = lookup(m.handle, "mlx5dv_reg_dmabuf_mr", mlx5Version)
		}
	}
	return m.dataDirectSysfsPath, m.regDmabufMR
}

// DataDirectPath returns the path below /sys of the PCIe function by which the device reaches GPU memory beside its own
// one; "" if it has none, or if the library does not know of such functions.
func (c *Context) DataDirectPath() (string, error) {
	if err := c.life.check(); err != nil {
		return "", err
	}
	path, errno := c.lib.driver.DataDirectPath(c.info.Handle)
	switch errno {
	case syscall.ENODEV, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.ENOSYS, syscall.ENOTTY:
		return "", nil // the errors of an adapter, a library and kernels without it
	}
	return path, newError("mlx5dv_get_data_direct_sysfs_path", c.device.info.Name, 0, errno, "")
}

// RegDataDirectMR is RegDmaBufMR for memory of a GPU that the device reaches by its function for that; see
// [Context.DataDirectPath].
func (pd *PD) RegDataDirectMR(offset, length, iova uint64, fd int, access uint32) (*MR, error) {
	lib := pd.ctx.lib
	return pd.register(uintptr(iova), uintptr(length), func() (MRInfo, error) {
		info, errno := lib.driver.RegDataDirectMR(pd.ptr, offset, length, iova, fd, access)
		detail := fmt.Sprintf("%d bytes at offset %d of DMA-BUF %d for address %#x, access %#x, by Data Direct", length, offset, fd, iova, access)
		return info, newError("mlx5dv_reg_dmabuf_mr", pd.ctx.device.info.Name, 0, errno, detail+regHint(errno))
	})
}
