// This file isolates C strings: log lines, and the names that NCCL keeps. C memory is freed here or, where noted, kept for ever.

package main

// #include <stdlib.h>
// #include "plugin.h"
import "C"

import (
	"unsafe"

	"ncclmesh/capi/host"
	"ncclmesh/ncclnet"
)

// loggerFor wraps NCCL's log function.
func loggerFor(f C.ncclDebugLogger_t) ncclnet.Logger {
	if f == nil {
		return nil
	}
	return func(level, subsystems int, file string, line int, text string) {
		cfile, ctext := C.CString(file), C.CString(text)
		defer C.free(unsafe.Pointer(cfile))
		defer C.free(unsafe.Pointer(ctext))
		C.mesh_log(f, C.int(level), C.ulong(subsystems), cfile, C.int(line), ctext)
	}
}

// intern returns a name in the properties as a C string that is never freed, because NCCL keeps it. The pointer of "" is NULL.
func intern(s string) *C.char {
	if s == "" {
		return nil
	}
	return (*C.char)(host.Intern(s))
}
