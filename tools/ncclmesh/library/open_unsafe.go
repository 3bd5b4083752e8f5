package library

// This file isolates the call of the C library's dynamic linker. What it loads runs code of its own: the caller is a process
// that may end with it.

import "github.com/ebitengine/purego"

// Open loads a library as NCCL does, with all that it needs, and leaves it loaded. The error is the dynamic linker's.
func Open(path string) error {
	_, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	return err
}
