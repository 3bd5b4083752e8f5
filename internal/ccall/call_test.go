package ccall

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

func libc(t testing.TB, name string) uintptr {
	t.Helper()
	p, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
	if err != nil {
		t.Fatalf("libc lacks %s: %v", name, err)
	}
	return p
}

func TestCall(t *testing.T) {
	buf := make([]byte, 64)
	format := []byte("%d %d %d\x00")
	n := Call(libc(t, "snprintf"), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(unsafe.Pointer(&format[0])), 1, 22, 333)
	if got, want := string(buf[:n]), "1 22 333"; got != want {
		t.Errorf("six arguments: got %q, want %q", got, want)
	}
}

func TestErrno(t *testing.T) {
	loc, open := libc(t, "__errno_location"), libc(t, "open")
	path := []byte("/nonexistent\x00")
	r, errno := Errno(loc, open, uintptr(unsafe.Pointer(&path[0])), 0, 0, 0, 0, 0, 0)
	if int32(r) != -1 || errno != syscall.ENOENT {
		t.Errorf("open of a missing file: got %d, %v, want -1, ENOENT", int32(r), errno)
	}
	// A call that succeeds does not see the errno that an earlier one left.
	r, errno = Errno(loc, libc(t, "getpid"), 0, 0, 0, 0, 0, 0, 0)
	if int(r) != syscall.Getpid() || errno != 0 {
		t.Errorf("getpid: got %d, %v, want %d, 0", r, errno, syscall.Getpid())
	}
	buf := make([]byte, 64)
	format := []byte("%d %d %d %d\x00")
	n, errno := Errno(loc, libc(t, "snprintf"), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(unsafe.Pointer(&format[0])), 1, 22, 333, 4444)
	if got, want := string(buf[:n]), "1 22 333 4444"; got != want || errno != 0 {
		t.Errorf("seven arguments: got %q, %v, want %q", got, errno, want)
	}
}

func TestOut(t *testing.T) {
	// int getsubopt(char **cursor, char *const *tokens, char **value)
	option := []byte("name=value\x00")
	name := []byte("name\x00")
	cursor := &option[0]
	tokens := [2]*byte{&name[0], nil}
	i, value := Out(libc(t, "getsubopt"), uintptr(unsafe.Pointer(&cursor)), uintptr(unsafe.Pointer(&tokens)))
	if want := uintptr(unsafe.Pointer(&option[5])); int32(i) != 0 || value != want {
		t.Errorf("getsubopt: got %d, %#x, want 0, %#x", int32(i), value, want)
	}
}

func TestNoAllocation(t *testing.T) {
	loc, getpid := libc(t, "__errno_location"), libc(t, "getpid")
	for name, f := range map[string]func(){
		"Call":  func() { Call(getpid, 0, 0, 0, 0, 0, 0) },
		"Errno": func() { Errno(loc, getpid, 0, 0, 0, 0, 0, 0, 0) },
		"Out":   func() { Out(getpid, 0, 0) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times per call", name, n)
		}
	}
}

// Arguments and results survive the growth and the move of the calling goroutine's stack.
func TestDeepStacks(t *testing.T) {
	getpid, want := libc(t, "getpid"), uintptr(syscall.Getpid())
	var deep func(n int) uintptr
	deep = func(n int) uintptr {
		var room [512]byte
		if n == 0 {
			return Call(getpid, 0, 0, 0, 0, 0, 0)
		}
		room[n%len(room)] = 1
		return deep(n-1) + uintptr(room[n%len(room)]) - 1
	}
	done := make(chan uintptr)
	for i := range 32 {
		go func() { done <- deep(i * 16) }()
	}
	for range 32 {
		if got := <-done; got != want {
			t.Errorf("getpid from a deep stack: got %d, want %d", got, want)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	labs := libc(b, "labs") // as little as a function can do
	for b.Loop() {
		Call(labs, 0, 0, 0, 0, 0, 0)
	}
}
