package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// before is what Loaded returned before anything loaded CUDA.
var before error

func TestMain(m *testing.M) {
	_, before = Loaded()
	os.Exit(m.Run())
}

// A fake is tests/fakecuda's library, loaded as a program loads CUDA.
type fake struct {
	*Driver
	t      *testing.T
	handle uintptr
}

var loadFake = sync.OnceValues(func() (uintptr, error) {
	dir, err := fabric.Make("fakecuda")
	if err != nil {
		return 0, err
	}
	return purego.Dlopen(filepath.Join(dir, "fakecuda/libcuda.so.1"), purego.RTLD_NOW|purego.RTLD_GLOBAL)
})

func newFake(t *testing.T) fake {
	t.Helper()
	require.Tools(t, require.CC, "make", "gcc", "flock")
	handle, err := loadFake()
	if err != nil {
		t.Fatal(err)
	}
	f := fake{t: t, handle: handle}
	f.call("cuInit", 0)
	if f.Driver, err = Loaded(); err != nil {
		t.Fatal(err)
	}
	return f
}

// call calls a function of the fake that is to succeed.
func (f fake) call(name string, args ...uintptr) {
	f.t.Helper()
	p, err := purego.Dlsym(f.handle, name)
	if err != nil {
		f.t.Fatal(err)
	}
	if r, _, _ := purego.SyscallN(p, args...); int32(r) != 0 {
		f.t.Fatalf("%s: %d", name, int32(r))
	}
}

// flushes returns how often CUDA has flushed.
func (f fake) flushes() int {
	f.t.Helper()
	p, err := purego.Dlsym(f.handle, "fakecuda_flushes")
	if err != nil {
		f.t.Fatal(err)
	}
	n, _, _ := purego.SyscallN(p)
	return int(int32(n))
}

// alloc calls a function whose first arguments are where to put an address, and a size.
func (f fake) alloc(name string, size uintptr, more ...uintptr) uintptr {
	f.t.Helper()
	at := new(uintptr)
	f.call(name, append([]uintptr{uintptr(unsafe.Pointer(at)), size}, more...)...)
	return *at
}

// set sets a variable of C's environment, which the fake reads, until the test ends.
func (f fake) set(name, value string) {
	f.t.Helper()
	libc := func(name string, args ...uintptr) {
		p, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			f.t.Fatal(err)
		}
		purego.SyscallN(p, args...)
	}
	n, v := append([]byte(name), 0), append([]byte(value), 0)
	libc("setenv", uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])), 1)
	f.t.Cleanup(func() { libc("unsetenv", uintptr(unsafe.Pointer(&n[0]))) })
}

// CUDA may come into the process after it was asked for; Loaded does not bring it.
func TestLoaded(t *testing.T) {
	if !errors.Is(before, ErrNotLoaded) {
		t.Errorf("in a process without CUDA: %v", before)
	}
	f := newFake(t)
	if again, err := Loaded(); again != f.Driver || err != nil {
		t.Errorf("the second call: %p, %v; the first returned %p", again, err, f.Driver)
	}
}

func TestMissingFunctions(t *testing.T) {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_LAZY)
	if err != nil {
		t.Fatal(err)
	}
	var fn functions
	want := []string{"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuCtxGetDevice", "cuPointerGetAttribute", "cuMemGetAddressRange_v2"}
	if diff := cmp.Diff(want, fn.resolve(libc)); diff != "" {
		t.Errorf("of libcuda's functions libc lacks (-want +got):\n%s", diff)
	}
}

// All combinations of the attributes that decide about GPUDirect RDMA, for the current device and for all devices.
func TestAttributes(t *testing.T) {
	for i := range 16 {
		gdr, vmm, dmabuf, all := i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0
		t.Run(fmt.Sprintf("116=%t 110=%t 124=%t without context=%t", gdr, vmm, dmabuf, all), func(t *testing.T) {
			f := newFake(t)
			bit := map[bool]string{false: "0", true: "1"}
			want := Attributes{Devices: 1, GPUDirectRDMA: gdr, GPUDirectRDMAWithVMM: vmm, DMABuf: dmabuf, FlushByHost: true}
			before := "1," // of the first of three devices
			f.set("FAKECUDA_DEVICES", "3")
			if all {
				f.set("FAKECUDA_NO_CONTEXT", "1")
				want.Devices = 3
			} else {
				f.set("FAKECUDA_DEVICE", "1")
			}
			f.set("FAKECUDA_GDR", before+bit[gdr]+",1")
			f.set("FAKECUDA_VMM_GDR", before+bit[vmm]+",1")
			f.set("FAKECUDA_DMABUF", before+bit[dmabuf]+",1")
			got, err := f.Attributes()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlushAttribute(t *testing.T) {
	for value, want := range map[string]bool{"0": false, "1": true, "2": false, "3": true} { // bit 0 is the host's
		f := newFake(t)
		f.set("FAKECUDA_FLUSH", value)
		f.flush.Store(nil) // as in a new process
		a, err := f.Attributes()
		if err != nil || a.FlushByHost != want {
			t.Errorf("attribute 117 = %s: %t, %v; want %t", value, a.FlushByHost, err, want)
		}
		err = f.FlushWrites()
		if want != (err == nil) {
			t.Errorf("attribute 117 = %s: FlushWrites: %v", value, err)
		}
	}
	f := newFake(t)
	f.set("FAKECUDA_FLUSH", "1")
	f.flush.Store(nil)
	before := f.flushes()
	if n := testing.AllocsPerRun(100, func() { _ = f.FlushWrites() }); n > 0 {
		t.Errorf("FlushWrites allocates %v times", n)
	}
	if n := f.flushes() - before; n != 101 { // AllocsPerRun calls once more than it is told
		t.Errorf("CUDA has flushed %d times, want 101", n)
	}
	f.set("FAKECUDA_NO_CONTEXT", "1")
	var e *Error
	if err := f.FlushWrites(); !errors.As(err, &e) || e.Error() != "cuFlushGPUDirectRDMAWrites: CUDA_ERROR_INVALID_CONTEXT (201)" {
		t.Errorf("without a context: %v", err)
	}
	f.set("FAKECUDA_DEVICES", "3")
	f.set("FAKECUDA_PRIMARY", "1,0,1")
	before = f.flushes()
	if err := f.FlushWrites(); err != nil || f.flushes()-before != 2 {
		t.Errorf("with the primary contexts of two devices: %d flushes, %v", f.flushes()-before, err)
	}
	if _, r := f.currentDevice(); r != CUDA_ERROR_INVALID_CONTEXT {
		t.Errorf("a context stays current: result %d", r)
	}
}

func TestNoDevices(t *testing.T) {
	f := newFake(t)
	f.set("FAKECUDA_DEVICES", "0")
	f.set("FAKECUDA_NO_CONTEXT", "1")
	if a, err := f.Attributes(); err == nil || err.Error() != "cuDeviceGetCount: CUDA_ERROR_NO_DEVICE (100)" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestMemory(t *testing.T) {
	f := newFake(t)
	plain := make([]byte, 100)
	device := f.alloc("cuMemAlloc_v2", 5000)
	managed := f.alloc("cuMemAllocManaged", 100, 1)
	pinned := f.alloc("cuMemHostAlloc", 100, 0)
	tests := []struct {
		name string
		addr uintptr
		want Memory
	}{
		{"unknown to CUDA", uintptr(unsafe.Pointer(&plain[0])), Memory{Kind: Host}},
		{"NULL", 0, Memory{Kind: Host}},
		{"cuMemAlloc", device + 4999, Memory{Device, 1, device, 5000}},
		{"behind it", device + 5000, Memory{Kind: Host}},
		{"cuMemAllocManaged", managed, Memory{Managed, 2, managed, 100}},
		{"cuMemHostAlloc", pinned + 1, Memory{Host, 3, pinned, 100}},
	}
	first := f.Memory(device).ID
	for _, tt := range tests {
		if tt.want.ID > 0 {
			tt.want.ID += first - 1
		}
		if diff := cmp.Diff(tt.want, f.Memory(tt.addr)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	f.call("cuMemFree_v2", device)
	if id, known := f.BufferID(device); known {
		t.Errorf("freed memory has the number %d", id)
	}
	again := f.alloc("cuMemAlloc_v2", 5000)
	if id, known := f.BufferID(again); again != device || !known || id == first {
		t.Errorf("the next allocation is at %#x, number %d, %t; the one before was at %#x, number %d", again, id, known, device, first)
	}
	f.set("FAKECUDA_NO_CONTEXT", "1")
	for _, addr := range []uintptr{again, pinned, uintptr(unsafe.Pointer(&plain[0]))} {
		if diff := cmp.Diff(Memory{}, f.Memory(addr)); diff != "" {
			t.Errorf("without a context %#x is not unknown (-want +got):\n%s", addr, diff)
		}
	}
}
