package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// inProcess is set in a process that has found libcuda.so.1 by its name, as programs do.
const inProcess = "CUDA_TEST_PROCESS"

// What this package says of the attributes and memory of a GPU, in a process of its own: with the fake, and with NVIDIA's driver where
// there is a GPU.
func TestProcess(t *testing.T) {
	if os.Getenv(inProcess) != "" {
		process(t)
		return
	}
	again := func(t *testing.T, env ...string) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcess$", "-test.v")
		cmd.Env = append(append(os.Environ(), inProcess+"=1"), env...)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
	}
	t.Run("fake", func(t *testing.T) {
		newFake(t)
		dir, err := fabric.Make("fakecuda")
		if err != nil {
			t.Fatal(err)
		}
		again(t, "LD_LIBRARY_PATH="+filepath.Join(dir, "fakecuda"))
	})
	t.Run("GPU", func(t *testing.T) {
		if _, err := os.Stat("/dev/nvidiactl"); err != nil {
			require.Skip(t, require.GPU, err.Error())
		}
		again(t)
	})
}

func process(t *testing.T) {
	runtime.LockOSThread() // the context is the thread's
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(soname, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		t.Fatal(err)
	}
	f := fake{t: t, handle: handle}
	if f.Driver, err = Loaded(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Attributes(); err == nil {
		t.Error("a driver that is not initialised has attributes")
	}
	f.call("cuInit", 0)
	all, err := f.Attributes()
	if err != nil {
		t.Fatal(err)
	}
	context := new(uintptr)
	f.call("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(context)), 0)
	f.call("cuCtxSetCurrent", *context)
	defer f.call("cuDevicePrimaryCtxRelease_v2", 0)
	one, err := f.Attributes()
	if err != nil || one.Devices != 1 {
		t.Errorf("with a context: %+v, %v", one, err)
	}
	t.Logf("the current GPU %+v, all GPUs %+v", one, all)

	device := f.alloc("cuMemAlloc_v2", 1<<20)
	pinned := f.alloc("cuMemHostAlloc", 1<<20, 0)
	managed := f.alloc("cuMemAllocManaged", 1<<20, 1)
	for addr, want := range map[uintptr]Kind{device + 1<<19: Device, pinned + 5: Host, managed: Managed, uintptr(unsafe.Pointer(context)): Host} {
		if m := f.Memory(addr); m.Kind != want {
			t.Errorf("%#x is %+v, want %v", addr, m, want)
		}
	}
	m := f.Memory(device + 1<<19)
	if m.Base > device || m.Base+m.Length < device+1<<20 || m.ID == 0 {
		t.Errorf("the allocation at %#x is %+v", device, m)
	}
	f.call("cuMemFree_v2", device)
	again := f.alloc("cuMemAlloc_v2", 1<<20)
	if id, known := f.BufferID(again); !known || id == m.ID {
		t.Errorf("the next allocation, at %#x, has number %d, %t; the one before, at %#x, had %d", again, id, known, device, m.ID)
	}
	if err := f.FlushWrites(); one.FlushByHost != (err == nil) {
		t.Errorf("FlushByHost is %t, FlushWrites: %v", one.FlushByHost, err)
	}
	f.call("cuMemFree_v2", again)
	f.call("cuMemFree_v2", managed)
	f.call("cuMemFreeHost", pinned)
}
