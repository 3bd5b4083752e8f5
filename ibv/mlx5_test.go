package ibv

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"ncclmesh/internal/ccall"
)

// loadMLX5 loads a stand-in for libmlx5, until the test ends. answer sets what it says of the device; access returns the flags
// of mlx5 of the last registration.
func loadMLX5(t *testing.T, s standin, flags ...string) (answer func(path string, errno syscall.Errno), access func() int32) {
	t.Helper()
	handle, err := dlopen(compile(t, "testdata/mlx5.c", append([]string{"-Wl,-soname,libmlx5.so.1", "-Wl,--version-script=testdata/mlx5.map"}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m := &s.driver.(*libibverbs).mlx5
		for _, h := range []uintptr{m.handle, handle} {
			if h == 0 {
				continue
			}
			if err := purego.Dlclose(h); err != nil {
				t.Error(err)
			}
		}
		m.handle, m.dataDirectSysfsPath, m.regDmabufMR = 0, 0, 0
		if h := ccall.Loaded(mlx5Library); h != 0 {
			t.Error("the stand-in is still loaded")
		}
	})
	set, last := lookup(handle, "mlx5_standin", "MLX5_1.24"), lookup(handle, "mlx5_standin_access", "MLX5_1.24")
	if set == 0 || last == 0 {
		t.Fatal("the stand-in lacks its own functions")
	}
	return func(path string, errno syscall.Errno) {
			ccall.Call(set, uintptr(unsafe.Pointer(cString(path))), uintptr(errno), s.driver.(*libibverbs).fn.regDmabufMR, 0, 0, 0)
		}, func() int32 {
			return int32(ccall.Call(last, 0, 0, 0, 0, 0, 0))
		}
}

// The device's function for GPU memory, as libmlx5 tells it, and none in all cases in which there is none.
func TestDataDirectPath(t *testing.T) {
	p := newPair(t)
	expect := func(what, want string) {
		t.Helper()
		if path, err := p.ctx.DataDirectPath(); path != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", what, path, err, want)
		}
	}
	expect("libmlx5 is not loaded", "")
	t.Run("old", func(t *testing.T) {
		loadMLX5(t, p.s, "-DOLD")
		expect("libmlx5 is older than rdma-core 54", "")
	})
	answer, _ := loadMLX5(t, p.s)
	for _, errno := range []syscall.Errno{syscall.ENODEV, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT} {
		answer("", errno)
		expect(errno.Error(), "")
	}
	answer("/devices/pci0000:00/0000:00:01.0/0000:03:00.0", 0)
	expect("ConnectX-8", "/devices/pci0000:00/0000:00:01.0/0000:03:00.0")
	answer("", syscall.EIO)
	if _, err := p.ctx.DataDirectPath(); !errors.Is(err, syscall.EIO) {
		t.Errorf("a failure: %v", err)
	}
}

// Memory of a GPU is registered by libmlx5, with its flag for Data Direct.
func TestRegDataDirectMR(t *testing.T) {
	p := newPair(t)
	if _, err := p.pd.RegDataDirectMR(4096, 1<<20, 0x7f0000000000, 9, 0); !errors.Is(err, ErrNotSupported) {
		t.Errorf("without libmlx5: %v, want ErrNotSupported", err)
	}
	answer, access := loadMLX5(t, p.s)
	answer("/devices/x", 0)
	const flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
	mr, err := p.pd.RegDataDirectMR(4096, 1<<20, 0x7f0000000000, 9, flags)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%#x %#x %d", mr.Addr(), p.s.call("standin_last_access"), access())
	if want := fmt.Sprintf("0x7f0000000000 %#x 1", flags); got != want {
		t.Errorf("region, access of verbs and of mlx5: %s, want %s", got, want)
	}
	closeAll(t, mr)
	if _, err := p.pd.RegDataDirectMR(0, 1<<20, 0, 9, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a bad descriptor: %v, want EBADF", err)
	}
}
