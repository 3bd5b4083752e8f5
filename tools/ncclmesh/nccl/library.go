package nccl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The names by which the dynamic linker finds both libraries.
const (
	ncclName = "libnccl.so.2"
	cudaName = "libcuda.so.1"
)

// functions are those that are called; 0 where an optional one is missing.
type functions struct {
	getVersion, getUniqueID, commInitRank, commDestroy, commAbort fn
	commGetAsyncError, getErrorString, getLastError               fn
	allReduce, allGather, reduceScatter, broadcast                fn

	init, deviceGetCount, deviceGet, deviceGetName, getErrorText  fn
	contextRetain, contextRelease, contextSet, contextSynchronize fn
	memGetInfo, memAlloc, memFree, memcpyToDevice, memcpyToHost   fn
	streamCreate, streamQuery, streamDestroy                      fn
}

type symbol struct {
	name     string
	optional bool
	at       *fn
}

func (f *functions) nccl() []symbol {
	return []symbol{
		{"ncclGetVersion", false, &f.getVersion},
		{"ncclGetUniqueId", false, &f.getUniqueID},
		{"ncclCommInitRank", false, &f.commInitRank},
		{"ncclCommDestroy", false, &f.commDestroy},
		{"ncclCommAbort", false, &f.commAbort},
		{"ncclCommGetAsyncError", false, &f.commGetAsyncError},
		{"ncclGetErrorString", false, &f.getErrorString},
		{"ncclGetLastError", true, &f.getLastError}, // from 2.13 on
		{"ncclAllReduce", false, &f.allReduce},
		{"ncclAllGather", false, &f.allGather},
		{"ncclReduceScatter", false, &f.reduceScatter},
		{"ncclBroadcast", false, &f.broadcast},
	}
}

func (f *functions) cuda() []symbol {
	return []symbol{
		{"cuInit", false, &f.init},
		{"cuDeviceGetCount", false, &f.deviceGetCount},
		{"cuDeviceGet", false, &f.deviceGet},
		{"cuDeviceGetName", false, &f.deviceGetName},
		{"cuGetErrorString", false, &f.getErrorText},
		{"cuDevicePrimaryCtxRetain", false, &f.contextRetain},
		{"cuDevicePrimaryCtxRelease_v2", false, &f.contextRelease},
		{"cuCtxSetCurrent", false, &f.contextSet},
		{"cuCtxSynchronize", false, &f.contextSynchronize},
		{"cuMemGetInfo_v2", false, &f.memGetInfo},
		{"cuMemAlloc_v2", false, &f.memAlloc},
		{"cuMemFree_v2", false, &f.memFree},
		{"cuMemcpyHtoD_v2", false, &f.memcpyToDevice},
		{"cuMemcpyDtoH_v2", false, &f.memcpyToHost},
		{"cuStreamCreate", false, &f.streamCreate},
		{"cuStreamQuery", false, &f.streamQuery},
		{"cuStreamDestroy_v2", false, &f.streamDestroy},
	}
}

// A Library is the NCCL and the CUDA driver of this node. It stays loaded until the process ends.
type Library struct {
	functions
	path    string
	version int // as ncclGetVersion returns it
	devices int
}

// Open loads both libraries. file is NCCL's; "" looks for it by its name, and then where Python's packages have it. getenv
// reads the variables that say where those are.
func Open(file string, getenv func(string) string) (*Library, error) {
	l := &Library{}
	bufferLines()
	cuda, err := load(cudaName)
	if err != nil {
		return nil, fmt.Errorf("the CUDA driver's library cannot be loaded: %w; install NVIDIA's driver, or, in a container, give it the GPUs (--gpus all)", err)
	}
	if err := fill(cuda, cudaName, l.cuda()); err != nil {
		return nil, err
	}
	nccl, err := l.loadNCCL(file, getenv)
	if err != nil {
		return nil, err
	}
	if err := fill(nccl, l.path, l.nccl()); err != nil {
		return nil, err
	}
	version, result := out[int32](l.getVersion, 0)
	if result != 0 {
		return nil, l.ncclError("ncclGetVersion", result, 0)
	}
	l.version = int(version)
	if result := l.init.call(0); result != 0 {
		return nil, l.cudaError("cuInit", result)
	}
	count, result := out[int32](l.deviceGetCount, 0)
	if result != 0 {
		return nil, l.cudaError("cuDeviceGetCount", result)
	}
	if count == 0 {
		return nil, errors.New("the CUDA driver finds no GPU: see CUDA_VISIBLE_DEVICES and nvidia-smi")
	}
	l.devices = int(count)
	return l, nil
}

// Devices returns how many GPUs there are, at least 1.
func (l *Library) Devices() int { return l.devices }

// Version returns NCCL's version as people write it.
func (l *Library) Version() string {
	v := l.version
	if v < 10000 { // before 2.9
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// loadNCCL loads the first that can be loaded, and sets the path.
func (l *Library) loadNCCL(file string, getenv func(string) string) (uintptr, error) {
	tries := []string{file}
	if file == "" {
		tries = append([]string{ncclName}, elsewhere(getenv)...)
	}
	var first error
	for _, path := range tries {
		handle, err := load(path)
		if err == nil {
			l.path = path
			return handle, nil
		}
		if first == nil {
			first = err
		}
	}
	if file != "" {
		return 0, fmt.Errorf("NCCL cannot be loaded: %w", first)
	}
	return 0, fmt.Errorf("NCCL cannot be loaded: %w; install libnccl2, or name the file that PyTorch brings, site-packages/nvidia/nccl/lib/%s, with --nccl FILE", first, ncclName)
}

// elsewhere are the files in which NCCL is often found although the dynamic linker does not look there.
func elsewhere(getenv func(string) string) (files []string) {
	var roots []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := getenv(name); filepath.IsAbs(dir) {
			roots = append(roots, dir)
		}
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	roots = append(roots, "/usr/local")
	for _, root := range roots {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(root, "lib/python3*", packages, "nvidia/nccl/lib", ncclName)) // the pattern is valid
			files = append(files, found...)
		}
	}
	cuda, _ := filepath.Glob("/usr/local/cuda*/lib64/" + ncclName)
	return slices.Concat(files, cuda)
}

func fill(library uintptr, name string, symbols []symbol) error {
	var missing []string
	for _, s := range symbols {
		if *s.at = find(library, s.name); *s.at == 0 && !s.optional {
			missing = append(missing, s.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s has no %s: another version is needed", name, strings.Join(missing, ", "))
	}
	return nil
}

// An Error is what one of both libraries has refused.
type Error struct {
	Call string // the C function
	Code int    // an ncclResult_t or a CUresult
	Text string // the library's own
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// ncclError returns a result of NCCL's as an error, with what NCCL last said of it.
func (l *Library) ncclError(call string, result int32, comm uintptr) error {
	text := l.getErrorString.text(uintptr(result))
	if l.getLastError != 0 {
		if last := strings.TrimSpace(l.getLastError.text(comm)); last != "" {
			text += ": " + last
		}
	}
	return &Error{call, int(result), text}
}

func (l *Library) cudaError(call string, result int32) error {
	text, _ := out[uintptr](l.getErrorText, 1, uintptr(result)) // 0 for a number that it does not know
	return &Error{call, int(result), goString(text)}
}
