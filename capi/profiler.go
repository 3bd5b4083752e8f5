package main

// #include "plugin.h"
import "C"

import "ncclmesh/ncclnet"

func startEvent(callback, step uintptr, e ncclnet.Event) uintptr {
	return uintptr(C.mesh_event_start(C.uintptr_t(callback), C.uintptr_t(step), C.struct_mesh_event{
		socket:  flag(e.Socket),
		sending: flag(e.Sending),
		lane:    C.int(e.Lane),
		number:  C.int(e.Number),
		request: C.uint64_t(e.Request),
		length:  C.size_t(e.Bytes),
	}))
}

func stopEvent(callback, event uintptr) {
	C.mesh_event_stop(C.uintptr_t(callback), C.uintptr_t(event))
}
