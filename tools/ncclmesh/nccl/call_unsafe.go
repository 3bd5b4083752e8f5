package nccl

// This file is the way to the dynamic linker, and to memory that C reads and writes during a call.

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// fn is the address of a C function; 0 where an optional one is missing.
type fn uintptr

// bufferLines has the C library write each line of standard output at once, as to a terminal: it would keep what NCCL logs until
// the process ends, and this process ends without a word to the C library.
func bufferLines() {
	stdout, err := purego.Dlsym(purego.RTLD_DEFAULT, "stdout")
	setlinebuf, err2 := purego.Dlsym(purego.RTLD_DEFAULT, "setlinebuf")
	if err == nil && err2 == nil { // a C library without them keeps the log
		purego.SyscallN(setlinebuf, **(**uintptr)(unsafe.Pointer(&stdout)))
	}
}

func load(file string) (uintptr, error) {
	return purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// find returns a function of a library; 0 if the library has none of that name.
func find(library uintptr, name string) fn {
	at, err := purego.Dlsym(library, name)
	if err != nil {
		return 0
	}
	return fn(at)
}

// call calls a C function whose arguments are numbers, and returns its int.
func (f fn) call(args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(uintptr(f), args...)
	return int32(r)
}

// text calls a C function that returns a text, which the library keeps.
func (f fn) text(args ...uintptr) string {
	at, _, _ := purego.SyscallN(uintptr(f), args...)
	return goString(at)
}

// out calls a C function that writes a value, whose address becomes the argument of that index, and returns its int too.
func out[T any](f fn, index int, args ...uintptr) (value T, result int32) {
	var pin runtime.Pinner
	defer pin.Unpin()
	v := new(T)
	pin.Pin(v)
	all := append(append(append([]uintptr{}, args[:index]...), uintptr(unsafe.Pointer(v))), args[index:]...)
	result = f.call(all...)
	return *v, result
}

// twoSizes calls a C function that writes two sizes.
func (f fn) twoSizes() (one, other uint, result int32) {
	var pin runtime.Pinner
	defer pin.Unpin()
	v := new([2]uint)
	pin.Pin(v)
	result = f.call(uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])))
	return v[0], v[1], result
}

// memory calls a C function with the address of bytes of Go's, of which there is at least one, as the argument of that index.
func (f fn) memory(b []byte, index int, args ...uintptr) int32 {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&b[0])
	all := append(append(append([]uintptr{}, args[:index]...), uintptr(unsafe.Pointer(&b[0]))), args[index:]...)
	return f.call(all...)
}

// commInitRank is ncclCommInitRank, the one function that takes a structure by value: each machine has its own way for that.
func commInitRank(f fn, ranks int, id UniqueID, rank int) (comm uintptr, result int32) {
	type byValue struct{ Internal UniqueID }
	var call func(comm *uintptr, ranks int32, id byValue, rank int32) int32
	purego.RegisterFunc(&call, uintptr(f))
	result = call(&comm, int32(ranks), byValue{id}, int32(rank))
	return comm, result
}

func goString(at uintptr) string {
	if at == 0 {
		return ""
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&at))
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}
