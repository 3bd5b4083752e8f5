// This file isolates the arrays that NCCL passes: they belong to the caller, have the
// length that the caller passes, and are not used after the call.

package main

// #include "plugin.h"
// #include "rma_abi.h"
import "C"

import (
	"unsafe"

	"ncclmesh/ncclnet"
)

// Constants that are equal in C, in Go and in NCCL.
const (
	_ = uint(C.NCCL_NET_HANDLE_MAXSIZE-ncclnet.HandleSize) + uint(ncclnet.HandleSize-C.NCCL_NET_HANDLE_MAXSIZE)
	_ = uint(C.MESH_MAX_RECVS-ncclnet.MaxRecvs) + uint(ncclnet.MaxRecvs-C.MESH_MAX_RECVS)
	_ = uint(C.NCCL_PTR_HOST-ncclnet.NCCL_PTR_HOST) + uint(ncclnet.NCCL_PTR_HOST-C.NCCL_PTR_HOST)
	_ = uint(C.NCCL_NET_SIGNAL_OP_ADD-ncclnet.NCCL_NET_SIGNAL_OP_ADD) + uint(ncclnet.NCCL_NET_SIGNAL_OP_ADD-C.NCCL_NET_SIGNAL_OP_ADD)
	_ = uint(-1 - C.NCCL_NET_TRAFFIC_CLASS_UNDEF) // undefined is negative, which Init treats as no traffic class
)

//export meshListen
func meshListen(ctx C.uintptr_t, dev C.int, handle *C.uint8_t, listenComm *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("listen", ctx, &r)
	h, wire, res := plugin.Listen(ncclnet.Handle(ctx), int(dev))
	if res == C.ncclSuccess {
		*(*[ncclnet.HandleSize]byte)(unsafe.Pointer(handle)) = wire
		*listenComm = C.uintptr_t(h)
	}
	return C.ncclResult_t(res)
}

//export meshConnect
func meshConnect(ctx C.uintptr_t, dev C.int, handle *C.uint8_t, sendComm *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("connect", ctx, &r)
	wire := (*[ncclnet.HandleSize]byte)(unsafe.Pointer(handle))
	h, res := plugin.Connect(ncclnet.Handle(ctx), int(dev), wire)
	*sendComm = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRmaListen
func meshRmaListen(ctx C.uintptr_t, dev C.int, handle *C.uint8_t, listenComm *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA listen", ctx, &r)
	h, wire, res := plugin.RMAListen(ncclnet.Handle(ctx), int(dev))
	if res == C.ncclSuccess {
		*(*[ncclnet.HandleSize]byte)(unsafe.Pointer(handle)) = wire
		*listenComm = C.uintptr_t(h)
	}
	return C.ncclResult_t(res)
}

//export meshRmaConnect
func meshRmaConnect(handles **C.uint8_t, nranks, rank C.int, listenComm C.uintptr_t, collComm *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA connect", listenComm, &r)
	wires := make([]*[ncclnet.HandleSize]byte, max(nranks, 0))
	for i := range wires {
		wires[i] = (*[ncclnet.HandleSize]byte)(unsafe.Pointer(unsafe.Slice(handles, nranks)[i]))
	}
	h, res := plugin.RMAConnect(wires, int(rank), ncclnet.Handle(listenComm))
	*collComm = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshIrecv
func meshIrecv(recvComm C.uintptr_t, n C.int, data *C.uintptr_t, sizes *C.size_t, tags *C.int,
	mhandles, phandles *C.uintptr_t, request *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("irecv", recvComm, &r)
	var bufs [ncclnet.MaxRecvs]ncclnet.Buffer
	if n < 1 || int(n) > len(bufs) {
		_, res := plugin.Irecv(ncclnet.Handle(recvComm), nil)
		return C.ncclResult_t(res)
	}
	for i := range bufs[:n] {
		b := &bufs[i]
		b.Addr = uintptr(unsafe.Slice(data, n)[i])
		b.Size = int(unsafe.Slice(sizes, n)[i])
		b.Tag = int32(unsafe.Slice(tags, n)[i])
		b.MR = ncclnet.Handle(unsafe.Slice(mhandles, n)[i])
		if phandles != nil {
			b.Step = uintptr(unsafe.Slice(phandles, n)[i])
		}
	}
	h, res := plugin.Irecv(ncclnet.Handle(recvComm), bufs[:n])
	*request = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshIflush
func meshIflush(recvComm C.uintptr_t, n C.int, data *C.uintptr_t, sizes *C.int, mhandles, request *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("iflush", recvComm, &r)
	var bufs [ncclnet.MaxRecvs]ncclnet.Buffer
	used := bufs[:min(max(int(n), 0), len(bufs))]
	for i := range used {
		b := &used[i]
		b.Addr = uintptr(unsafe.Slice(data, n)[i])
		b.Size = int(unsafe.Slice(sizes, n)[i])
		b.MR = ncclnet.Handle(unsafe.Slice(mhandles, n)[i])
	}
	h, res := plugin.Iflush(ncclnet.Handle(recvComm), used)
	*request = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshTest
func meshTest(request C.uintptr_t, done *C.int, sizes *C.int) (r C.ncclResult_t) {
	defer caught("test", request, &r)
	finished, res := plugin.Test(ncclnet.Handle(request), (*ncclnet.Sizes)(unsafe.Pointer(sizes)))
	if finished {
		*done = 1
	}
	return C.ncclResult_t(res)
}
