package cuda

import "runtime"

// Device attributes, from enum CUdevice_attribute_enum.
const (
	attributeIntegrated           = 18  // CU_DEVICE_ATTRIBUTE_INTEGRATED
	attributeGPUDirectRDMAWithVMM = 110 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
	attributeGPUDirectRDMA        = 116 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
	attributeFlushWritesOptions   = 117 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
	attributeDMABuf               = 124 // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
	flushWritesByHost             = 1   // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
	flushWritesToCurrentCtx       = 0   // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
	flushWritesScopeToOwner       = 100 // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER
)

// Attributes says what GPUs can do: the device of the calling thread's context, or all devices where the thread has no context. Of all
// devices an attribute is true if it is true of each.
type Attributes struct {
	Devices              int  // how many devices the attributes are of
	GPUDirectRDMA        bool // other PCIe devices can reach memory of cudaMalloc
	GPUDirectRDMAWithVMM bool // and memory that was mapped with CUDA's virtual memory management
	DMABuf               bool // memory can be exported as a DMA-BUF
	FlushByHost          bool // FlushWrites works
	Integrated           bool // the GPU shares the memory of the processor
}

// Attributes asks the driver for its devices' attributes. It fails if the driver is not initialised or sees no device. An attribute that
// the driver does not know is false.
func (d *Driver) Attributes() (Attributes, error) {
	device, result := d.currentDevice()
	if result == CUDA_SUCCESS {
		return d.attributesOf(device)
	}
	if result != CUDA_ERROR_INVALID_CONTEXT {
		return Attributes{}, failed("cuCtxGetDevice", result)
	}
	n, result := d.count()
	if result != CUDA_SUCCESS {
		return Attributes{}, failed("cuDeviceGetCount", result)
	}
	if n == 0 {
		return Attributes{}, failed("cuDeviceGetCount", CUDA_ERROR_NO_DEVICE)
	}
	all := Attributes{GPUDirectRDMA: true, GPUDirectRDMAWithVMM: true, DMABuf: true, FlushByHost: true, Integrated: true}
	for i := range n {
		device, result := d.device(i)
		if result != CUDA_SUCCESS {
			return Attributes{}, failed("cuDeviceGet", result)
		}
		a, err := d.attributesOf(device)
		if err != nil {
			return Attributes{}, err
		}
		all = Attributes{
			Devices:              all.Devices + 1,
			GPUDirectRDMA:        all.GPUDirectRDMA && a.GPUDirectRDMA,
			GPUDirectRDMAWithVMM: all.GPUDirectRDMAWithVMM && a.GPUDirectRDMAWithVMM,
			DMABuf:               all.DMABuf && a.DMABuf,
			FlushByHost:          all.FlushByHost && a.FlushByHost,
			Integrated:           all.Integrated && a.Integrated,
		}
	}
	return all, nil
}

func (d *Driver) attributesOf(device int32) (Attributes, error) {
	a := Attributes{Devices: 1}
	for _, q := range []struct {
		number int
		bits   int32 // of the value; one of them makes the attribute true
		is     *bool
	}{
		{attributeGPUDirectRDMA, -1, &a.GPUDirectRDMA},
		{attributeGPUDirectRDMAWithVMM, -1, &a.GPUDirectRDMAWithVMM},
		{attributeDMABuf, -1, &a.DMABuf},
		{attributeFlushWritesOptions, flushWritesByHost, &a.FlushByHost},
		{attributeIntegrated, -1, &a.Integrated},
	} {
		value, result := d.attribute(device, q.number)
		switch result {
		case CUDA_SUCCESS:
			*q.is = value&q.bits != 0
		case CUDA_ERROR_INVALID_VALUE: // the driver is older than the attribute
		default:
			return Attributes{}, failed("cuDeviceGetAttribute", result)
		}
	}
	return a, nil
}

// FlushWrites makes earlier writes of PCIe devices into the memory of a GPU visible to that GPU: the device of the calling thread's context,
// or, if the thread has no context, as a goroutine of a library, each device whose primary context the program uses. It fails with
// CUDA_ERROR_NOT_SUPPORTED if the devices do not have FlushByHost; it asks the driver for that once.
func (d *Driver) FlushWrites() error {
	const op = "cuFlushGPUDirectRDMAWrites"
	can := d.flush.Load()
	if can == nil {
		a, err := d.Attributes()
		if err != nil {
			return err
		}
		can = &a.FlushByHost
		d.flush.Store(can)
	}
	if !*can || d.fn.flushWrites == 0 {
		return failed(op, CUDA_ERROR_NOT_SUPPORTED)
	}
	r := d.flushWrites(flushWritesToCurrentCtx, flushWritesScopeToOwner)
	if r == CUDA_ERROR_INVALID_CONTEXT && d.fn.primaryState != 0 && d.fn.primaryRetain != 0 && d.fn.primaryRelease != 0 && d.fn.ctxPush != 0 && d.fn.ctxPop != 0 {
		r = d.flushPrimary()
	}
	return failed(op, r)
}

// flushPrimary flushes in each primary context that is active. It fails with CUDA_ERROR_INVALID_CONTEXT if none is.
func (d *Driver) flushPrimary() int {
	runtime.LockOSThread() // a context is current in a thread
	defer runtime.UnlockOSThread()
	n, r := d.count()
	if r != CUDA_SUCCESS {
		return r
	}
	flushed := CUDA_ERROR_INVALID_CONTEXT
	for i := range n {
		device, r := d.device(i)
		if r != CUDA_SUCCESS {
			return r
		}
		if active, r := d.primaryActive(device); r != CUDA_SUCCESS || !active {
			continue
		}
		if flushed = d.flushIn(device); flushed != CUDA_SUCCESS {
			return flushed
		}
	}
	return flushed
}

// flushIn flushes in the primary context of a device.
//
// Preconditions: the goroutine is locked to its thread.
func (d *Driver) flushIn(device int32) int {
	context, r := d.retainPrimary(device)
	if r != CUDA_SUCCESS {
		return r
	}
	defer d.releasePrimary(device)
	if r = d.pushContext(context); r != CUDA_SUCCESS {
		return r
	}
	defer d.popContext()
	return d.flushWrites(flushWritesToCurrentCtx, flushWritesScopeToOwner)
}
