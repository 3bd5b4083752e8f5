package cuda

// This file is the way to the dynamic linker and to the driver. The driver writes into variables of Go during a call only: none of the
// functions here keeps a pointer.

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"ncclmesh/internal/ccall"
)

func lookup(handle uintptr, name string) uintptr {
	p, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return p
}

func result(r uintptr) int { return int(int32(r)) }

// CUresult cuDeviceGetCount(int *count)
func (d *Driver) count() (int, int) {
	n := new(int32)
	r := result(ccall.Call(d.fn.deviceGetCount, uintptr(unsafe.Pointer(n)), 0, 0, 0, 0, 0))
	return int(*n), r
}

// CUresult cuDeviceGet(CUdevice *device, int ordinal)
func (d *Driver) device(ordinal int) (int32, int) {
	device := new(int32)
	r := result(ccall.Call(d.fn.deviceGet, uintptr(unsafe.Pointer(device)), uintptr(ordinal), 0, 0, 0, 0))
	return *device, r
}

// CUresult cuCtxGetDevice(CUdevice *device)
func (d *Driver) currentDevice() (int32, int) {
	device := new(int32)
	r := result(ccall.Call(d.fn.ctxGetDevice, uintptr(unsafe.Pointer(device)), 0, 0, 0, 0, 0))
	return *device, r
}

// CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
func (d *Driver) attribute(device int32, number int) (int32, int) {
	v := new(int32)
	r := result(ccall.Call(d.fn.deviceGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(number), uintptr(device), 0, 0, 0))
	return *v, r
}

// CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
//
// The attributes that are asked for have up to eight bytes.
func (d *Driver) pointer(addr uintptr, number int) (uint64, int) {
	v := new(uint64)
	r := result(ccall.Call(d.fn.pointerGetAttribute, uintptr(unsafe.Pointer(v)), uintptr(number), addr, 0, 0, 0))
	return *v, r
}

// CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
func (d *Driver) addressRange(addr uintptr) (base, length uintptr, r int) {
	v := new([2]uintptr)
	r = result(ccall.Call(d.fn.memGetAddressRange, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])), addr, 0, 0, 0))
	return v[0], v[1], r
}

// CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
func (d *Driver) flushWrites(target, scope int) int {
	return result(ccall.Call(d.fn.flushWrites, uintptr(target), uintptr(scope), 0, 0, 0, 0))
}

// CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
func (d *Driver) primaryActive(device int32) (bool, int) {
	v := new([2]int32)
	r := result(ccall.Call(d.fn.primaryState, uintptr(device), uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])), 0, 0, 0))
	return v[1] != 0, r
}

// CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
func (d *Driver) retainPrimary(device int32) (uintptr, int) {
	context := new(uintptr)
	r := result(ccall.Call(d.fn.primaryRetain, uintptr(unsafe.Pointer(context)), uintptr(device), 0, 0, 0, 0))
	return *context, r
}

// CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
func (d *Driver) releasePrimary(device int32) int {
	return result(ccall.Call(d.fn.primaryRelease, uintptr(device), 0, 0, 0, 0, 0))
}

// CUresult cuCtxPushCurrent_v2(CUcontext ctx)
func (d *Driver) pushContext(context uintptr) int {
	return result(ccall.Call(d.fn.ctxPush, context, 0, 0, 0, 0, 0))
}

// CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
func (d *Driver) popContext() int {
	context := new(uintptr)
	return result(ccall.Call(d.fn.ctxPop, uintptr(unsafe.Pointer(context)), 0, 0, 0, 0, 0))
}
