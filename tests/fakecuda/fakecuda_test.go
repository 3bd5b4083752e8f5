package fakecuda

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// A library is the loaded fake.
type library struct {
	t      *testing.T
	handle uintptr
}

func load(t *testing.T) library {
	t.Helper()
	require.Tools(t, require.CC, "cc", "make", "flock")
	out, err := filepath.Abs("../../build/fakecuda")
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command("make", "OUT="+out).CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, msg)
	}
	handle, err := purego.Dlopen(filepath.Join(out, "libcuda.so.1"), purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		t.Fatal(err)
	}
	l := library{t, handle}
	l.want(0, "cuInit", 0)
	return l
}

// call returns the result of a function, which is an int.
func (l library) call(name string, args ...uintptr) int {
	l.t.Helper()
	f, err := purego.Dlsym(l.handle, name)
	if err != nil {
		l.t.Fatal(err)
	}
	r, _, _ := purego.SyscallN(f, args...)
	return int(int32(r))
}

func (l library) want(result int, name string, args ...uintptr) {
	l.t.Helper()
	if got := l.call(name, args...); got != result {
		l.t.Fatalf("%s%x returned %d, want %d", name, args, got, result)
	}
}

// pointer returns the address of a variable that the caller keeps alive.
func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// setenv sets a variable of C's environment for the rest of the test.
func setenv(t *testing.T, name, value string) {
	t.Helper()
	set := func(f string, args ...uintptr) {
		p, err := purego.Dlsym(purego.RTLD_DEFAULT, f)
		if err != nil {
			t.Fatal(err)
		}
		purego.SyscallN(p, args...)
	}
	n, v := append([]byte(name), 0), append([]byte(value), 0)
	set("setenv", pointer(&n[0]), pointer(&v[0]), 1)
	t.Cleanup(func() { set("unsetenv", pointer(&n[0])) })
}

func (l library) alloc(size int) uintptr {
	l.t.Helper()
	at := new(uintptr)
	l.want(0, "cuMemAlloc_v2", pointer(at), uintptr(size))
	return *at
}

func (l library) attribute(at uintptr, number int) uint64 {
	l.t.Helper()
	v := new(uint64)
	l.want(0, "cuPointerGetAttribute", pointer(v), uintptr(number), at)
	return *v
}

// alias returns the other mapping of device memory, nil where there is none.
func alias(t *testing.T, at uintptr, length int) []byte {
	t.Helper()
	f, err := purego.Dlsym(purego.RTLD_DEFAULT, "fakecuda_alias") // as a fake adapter finds it
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := purego.SyscallN(f, at, uintptr(length))
	if p == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), length)
}

// faults reports whether a load from an address is a SIGSEGV.
func faults(at uintptr) (faulted bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { faulted = recover() != nil }()
	_ = **(**byte)(unsafe.Pointer(&at)) == 1
	return false
}

func TestDeviceMemory(t *testing.T) {
	l := load(t)
	const size = 10000
	at := l.alloc(size)
	if !faults(at) || !faults(at+size-1) {
		t.Error("the processor can read device memory")
	}
	put, got := bytes.Repeat([]byte("abcdefg"), 500), make([]byte, 3500)
	l.want(0, "cuMemcpyHtoD_v2", at+123, pointer(&put[0]), uintptr(len(put)))
	l.want(0, "cuMemcpyDtoH_v2", pointer(&got[0]), at+123, uintptr(len(got)))
	if !bytes.Equal(got, put) {
		t.Error("cuMemcpyDtoH returns other bytes than cuMemcpyHtoD wrote")
	}
	if !bytes.Equal(alias(t, at+123, len(put)), put) {
		t.Error("fakecuda_alias has other bytes than cuMemcpyHtoD wrote")
	}
	if alias(t, at+1, size) != nil || alias(t, at-1, 1) != nil || alias(t, pointer(&put[0]), 1) != nil {
		t.Error("fakecuda_alias knows memory that is not the device's")
	}
	l.want(1, "cuMemcpyHtoD_v2", at+1, pointer(&put[0]), size)
	base, length := new(uintptr), new(uintptr)
	l.want(0, "cuMemGetAddressRange_v2", pointer(base), pointer(length), at+size-1)
	if *base != at || *length != size {
		t.Errorf("range %#x, %d bytes; want %#x, %d", *base, *length, at, size)
	}
	l.want(500, "cuMemGetAddressRange_v2", pointer(base), pointer(length), pointer(&put[0]))
	id := l.attribute(at, 7)
	l.want(0, "cuMemFree_v2", at)
	l.want(1, "cuMemFree_v2", at)
	l.want(1, "cuPointerGetAttribute", pointer(new(uint64)), 7, at)
	if again := l.alloc(size); again != at {
		t.Errorf("memory at %#x after that at %#x was freed", again, at)
	} else if l.attribute(again, 7) <= id {
		t.Error("an address that is used again has no new BUFFER_ID")
	}
	l.want(0, "cuMemFree_v2", at)
}

func TestKinds(t *testing.T) {
	l := load(t)
	at := new(uintptr)
	type kind struct{ Type, Managed uint64 }
	tests := []struct {
		alloc, free string
		args        []uintptr
		want        kind
		readable    bool
	}{
		{"cuMemAlloc_v2", "cuMemFree_v2", nil, kind{2, 0}, false},
		{"cuMemAllocManaged", "cuMemFree_v2", []uintptr{1}, kind{2, 1}, true},
		{"cuMemHostAlloc", "cuMemFreeHost", []uintptr{0}, kind{1, 0}, true},
	}
	for _, tt := range tests {
		l.want(0, tt.alloc, append([]uintptr{pointer(at), 100}, tt.args...)...)
		if diff := cmp.Diff(tt.want, kind{l.attribute(*at+99, 2), l.attribute(*at+99, 8)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.alloc, diff)
		}
		if faults(*at) == tt.readable {
			t.Errorf("%s: the processor can read the memory: %t", tt.alloc, !tt.readable)
		}
		l.want(0, tt.free, *at)
	}
	l.want(1, "cuPointerGetAttribute", pointer(new(uint64)), 2, pointer(at)) // memory that CUDA does not know
}

// A DMA-BUF has the bytes of its range, also one that starts inside an allocation, and outlasts the memory.
func TestDMABuf(t *testing.T) {
	l := load(t)
	page := uintptr(unix.Getpagesize())
	at := l.alloc(int(3 * page))
	fd := new(int32)
	export := func(from, length uintptr) int {
		return l.call("cuMemGetHandleForAddressRange", pointer(fd), from, length, 1, 0)
	}
	for _, from := range []uintptr{at, at + page} {
		if r := export(from, 2*page); r != 0 {
			t.Fatalf("cuMemGetHandleForAddressRange: %d", r)
		}
		copy(alias(t, from, 6), "hello ")
		start, err := unix.Seek(int(*fd), 0, unix.SEEK_CUR)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := unix.Mmap(int(*fd), start, int(2*page), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		if string(mapped[:6]) != "hello " {
			t.Errorf("the DMA-BUF of %#x has %q", from, mapped[:6])
		}
		if err := unix.Munmap(mapped); err != nil {
			t.Error(err)
		}
		if from != at+page {
			_ = unix.Close(int(*fd))
		}
	}
	for _, refused := range [][2]uintptr{{at + 1, page}, {at, page - 1}, {at, 4 * page}, {at + page, 3 * page}, {at - page, page}, {at, 0}} {
		if r := export(refused[0], refused[1]); r != 1 {
			t.Errorf("%d bytes from byte %d: cuMemGetHandleForAddressRange returned %d, want 1", refused[1], refused[0]-at, r)
		}
	}
	l.want(0, "cuMemFree_v2", at)
	var b [6]byte
	if _, err := unix.Pread(int(*fd), b[:], int64(page)); err != nil || string(b[:]) != "hello " {
		t.Errorf("after the memory was freed its DMA-BUF has %q, %v", b, err)
	}
	_ = unix.Close(int(*fd))
	setenv(t, "FAKECUDA_DMABUF", "0")
	at = l.alloc(int(page))
	if r := export(at, page); r != 801 {
		t.Errorf("without DMA_BUF_SUPPORTED cuMemGetHandleForAddressRange returned %d, want 801", r)
	}
	l.want(0, "cuMemFree_v2", at)
}

func TestAttributes(t *testing.T) {
	l := load(t)
	read := func(device, attribute uintptr) any {
		v := new(int32)
		if r := l.call("cuDeviceGetAttribute", pointer(v), attribute, device); r != 0 {
			return "error " + map[int]string{1: "INVALID_VALUE", 101: "INVALID_DEVICE"}[r]
		}
		return int(*v)
	}
	all := func() (values []any) {
		for device := range uintptr(3) {
			for _, attribute := range []uintptr{116, 110, 124, 117} {
				values = append(values, read(device, attribute))
			}
		}
		return append(values, read(0, 9999))
	}
	const gone, unknown = "error INVALID_DEVICE", "error INVALID_VALUE"
	if diff := cmp.Diff([]any{1, 1, 1, 1, gone, gone, gone, gone, gone, gone, gone, gone, unknown}, all()); diff != "" {
		t.Errorf("without variables (-want +got):\n%s", diff)
	}
	setenv(t, "FAKECUDA_DEVICES", "3")
	setenv(t, "FAKECUDA_GDR", "1,0")
	setenv(t, "FAKECUDA_VMM_GDR", "0")
	setenv(t, "FAKECUDA_DMABUF", "0,0,1")
	setenv(t, "FAKECUDA_FLUSH", "2")
	if diff := cmp.Diff([]any{1, 0, 0, 2, 0, 0, 0, 2, 0, 0, 1, 2, unknown}, all()); diff != "" {
		t.Errorf("with variables (-want +got):\n%s", diff)
	}
	device := new(int32)
	setenv(t, "FAKECUDA_DEVICE", "2")
	if l.want(0, "cuCtxGetDevice", pointer(device)); *device != 2 {
		t.Errorf("the current device is %d, want 2", *device)
	}
	l.want(801, "cuFlushGPUDirectRDMAWrites", 0, 100)
	setenv(t, "FAKECUDA_FLUSH", "1")
	was := l.call("fakecuda_flushes")
	l.want(0, "cuFlushGPUDirectRDMAWrites", 0, 100)
	if n := l.call("fakecuda_flushes") - was; n != 1 {
		t.Errorf("%d flushes counted, want 1", n)
	}
	setenv(t, "FAKECUDA_NO_CONTEXT", "1")
	l.want(201, "cuCtxGetDevice", pointer(device))
	l.want(201, "cuPointerGetAttribute", pointer(new(uint64)), 2, pointer(device))
	l.want(201, "cuFlushGPUDirectRDMAWrites", 0, 100)
}
