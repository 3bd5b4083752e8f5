// This file isolates the environment, which C owns, the table that a forked child reads, and strings that C keeps.

package host

// #include <stdlib.h>
// #include "host.h"
// #cgo CFLAGS: -std=gnu11
import "C"

import (
	"sync"
	"unsafe"

	"ncclmesh/transport/forkfd"
)

func init() {
	addr, bits := forkfd.Table()
	C.mesh_fork_table(C.uintptr_t(addr), C.int(bits), C.uintptr_t(forkfd.Gate()))
}

// Getenv reads C's environment, because the host may have changed it since the process started.
func Getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c)) // "" for NULL
}

// Environ returns C's environment as a list of NAME=value.
func Environ() []string {
	var list []string
	for i := C.int(0); ; i++ {
		c := C.mesh_environ(i)
		if c == nil {
			return list
		}
		list = append(list, C.GoString(c))
	}
}

var interned struct {
	sync.Mutex
	strings map[string]*C.char
}

// Intern returns a char * to s that is never freed, because C code keeps it. Equal strings have the same pointer.
func Intern(s string) unsafe.Pointer {
	interned.Lock()
	defer interned.Unlock()
	if interned.strings == nil {
		interned.strings = make(map[string]*C.char)
	}
	c := interned.strings[s]
	if c == nil {
		c = C.CString(s)
		interned.strings[s] = c
	}
	return unsafe.Pointer(c)
}
