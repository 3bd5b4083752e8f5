package cuda

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"ncclmesh/internal/ccall"
)

// ErrNotLoaded means that the process has not loaded CUDA.
var ErrNotLoaded = errors.New("CUDA is not loaded in this process")

// soname is the name of the driver's library, also where its file has another name.
const soname = "libcuda.so.1"

// A Driver is the CUDA driver that is loaded in this process.
type Driver struct {
	fn    functions
	flush atomic.Pointer[bool] // FlushByHost of Attributes, as FlushWrites has asked once; nil: not yet
}

// functions are the addresses of the driver's functions; 0 where an optional one is missing.
type functions struct {
	deviceGetCount, deviceGet, deviceGetAttribute         uintptr
	ctxGetDevice, pointerGetAttribute, memGetAddressRange uintptr
	flushWrites                                           uintptr

	primaryState, primaryRetain, primaryRelease, ctxPush, ctxPop uintptr
}

type function struct {
	name     string
	required bool
	addr     *uintptr
}

func (f *functions) table() []function {
	return []function{
		{"cuDeviceGetCount", true, &f.deviceGetCount},
		{"cuDeviceGet", true, &f.deviceGet},
		{"cuDeviceGetAttribute", true, &f.deviceGetAttribute},
		{"cuCtxGetDevice", true, &f.ctxGetDevice},
		{"cuPointerGetAttribute", true, &f.pointerGetAttribute},
		{"cuMemGetAddressRange_v2", true, &f.memGetAddressRange},
		{"cuFlushGPUDirectRDMAWrites", false, &f.flushWrites}, // since CUDA 11.3
		{"cuDevicePrimaryCtxGetState", false, &f.primaryState},
		{"cuDevicePrimaryCtxRetain", false, &f.primaryRetain},
		{"cuDevicePrimaryCtxRelease_v2", false, &f.primaryRelease},
		{"cuCtxPushCurrent_v2", false, &f.ctxPush},
		{"cuCtxPopCurrent_v2", false, &f.ctxPop},
	}
}

// resolve looks the functions up and returns the required ones that are missing.
func (f *functions) resolve(handle uintptr) (missing []string) {
	for _, fn := range f.table() {
		if *fn.addr = lookup(handle, fn.name); *fn.addr == 0 && fn.required {
			missing = append(missing, fn.name)
		}
	}
	return missing
}

var found struct {
	mu     sync.Mutex
	driver *Driver // nil until the library is in the process
}

// Loaded returns the driver that is loaded in this process. The error is ErrNotLoaded if there is none yet. Any other error means that the
// library lacks functions that CUDA 11 has.
func Loaded() (*Driver, error) {
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.driver != nil {
		return found.driver, nil
	}
	handle := ccall.Loaded(soname)
	if handle == 0 {
		return nil, ErrNotLoaded
	}
	d := &Driver{}
	missing := d.fn.resolve(handle)
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s of this process lacks %s: it is older than CUDA 11, or not NVIDIA's driver library; update the NVIDIA driver", soname, strings.Join(missing, ", "))
	}
	found.driver = d
	return d, nil
}

// Results of the driver's functions, from enum cudaError_enum.
const (
	CUDA_SUCCESS                 = 0
	CUDA_ERROR_INVALID_VALUE     = 1
	CUDA_ERROR_NOT_INITIALIZED   = 3
	CUDA_ERROR_NO_DEVICE         = 100
	CUDA_ERROR_INVALID_CONTEXT   = 201
	CUDA_ERROR_NOT_FOUND         = 500
	CUDA_ERROR_NOT_SUPPORTED     = 801
	CUDA_ERROR_INVALID_DEVICE    = 101
	CUDA_ERROR_CONTEXT_DESTROYED = 709
)

// An Error is a function of the driver that failed.
type Error struct {
	Op     string // the function's name
	Result int
}

var resultNames = map[int]string{
	CUDA_ERROR_INVALID_VALUE:     "CUDA_ERROR_INVALID_VALUE",
	CUDA_ERROR_NOT_INITIALIZED:   "CUDA_ERROR_NOT_INITIALIZED",
	CUDA_ERROR_NO_DEVICE:         "CUDA_ERROR_NO_DEVICE",
	CUDA_ERROR_INVALID_DEVICE:    "CUDA_ERROR_INVALID_DEVICE",
	CUDA_ERROR_INVALID_CONTEXT:   "CUDA_ERROR_INVALID_CONTEXT",
	CUDA_ERROR_NOT_FOUND:         "CUDA_ERROR_NOT_FOUND",
	CUDA_ERROR_CONTEXT_DESTROYED: "CUDA_ERROR_CONTEXT_IS_DESTROYED",
	CUDA_ERROR_NOT_SUPPORTED:     "CUDA_ERROR_NOT_SUPPORTED",
}

func (e *Error) Error() string {
	if name := resultNames[e.Result]; name != "" {
		return fmt.Sprintf("%s: %s (%d)", e.Op, name, e.Result)
	}
	return fmt.Sprintf("%s: CUresult %d", e.Op, e.Result)
}

// failed returns nil for CUDA_SUCCESS.
func failed(op string, result int) error {
	if result == CUDA_SUCCESS {
		return nil
	}
	return &Error{op, result}
}
