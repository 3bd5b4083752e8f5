package ccall

// This file asks the dynamic linker for libraries. It reads no memory of theirs.

import "github.com/ebitengine/purego"

const rtldNoLoad = 4 // RTLD_NOLOAD of glibc's and musl's dlfcn.h

// Loaded returns a handle of a library that is loaded in this process, or 0. It loads nothing. The library stays loaded as
// long as the handle is not closed.
func Loaded(name string) uintptr {
	handle, err := purego.Dlopen(name, rtldNoLoad|purego.RTLD_LAZY)
	if err != nil {
		return 0
	}
	return handle
}
