package main

// #include "plugin.h"
import "C"

import (
	"ncclmesh/ncclnet"
	"ncclmesh/ncclnet/rma"
)

//export meshRmaInit
func meshRmaInit(ctx *C.uintptr_t, ncclVersion C.int, logger C.ncclDebugLogger_t) (r C.ncclResult_t) {
	defer caught("RMA init", 0, &r)
	h, res := plugin.RMAInit(loggerFor(logger), int(ncclVersion))
	*ctx = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRmaFinalize
func meshRmaFinalize(ctx C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA finalize", ctx, &r)
	return C.ncclResult_t(plugin.RMAFinalize(ncclnet.Handle(ctx)))
}

//export meshRmaDevices
func meshRmaDevices(ndev *C.int) (r C.ncclResult_t) {
	defer caught("RMA devices", 0, &r)
	n, res := plugin.RMADevices()
	*ndev = C.int(n)
	return C.ncclResult_t(res)
}

//export meshRmaProperties
func meshRmaProperties(dev C.int, props *C.struct_mesh_properties) (r C.ncclResult_t) {
	defer caught("RMA getProperties", 0, &r)
	p, res := plugin.RMAProperties(int(dev))
	if res == C.ncclSuccess {
		*props = convert(&p)
	}
	return C.ncclResult_t(res)
}

//export meshRmaCreateContext
func meshRmaCreateContext(collComm C.uintptr_t, nContexts C.int, rmaCtx *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA createContext", collComm, &r)
	h, res := plugin.RMACreateContext(ncclnet.Handle(collComm), int(nContexts))
	*rmaCtx = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRmaRegister
func meshRmaRegister(collComm, data C.uintptr_t, size C.size_t, ptrType C.int, mhandle *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("regMrSym", collComm, &r)
	h, res := plugin.RMARegister(ncclnet.Handle(collComm), uintptr(data), uintptr(size), int(ptrType))
	*mhandle = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRmaRegisterDmaBuf
func meshRmaRegisterDmaBuf(collComm, data C.uintptr_t, size C.size_t, ptrType C.int, offset C.uint64_t, fd C.int,
	mhandle *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("regMrSymDmaBuf", collComm, &r)
	h, res := plugin.RMARegisterDmaBuf(ncclnet.Handle(collComm), uintptr(data), uintptr(size), int(ptrType), uint64(offset), int(fd))
	*mhandle = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRmaDeregister
func meshRmaDeregister(collComm, mhandle C.uintptr_t) (r C.ncclResult_t) {
	defer caught("deregMrSym", collComm, &r)
	return C.ncclResult_t(plugin.RMADeregister(ncclnet.Handle(collComm), ncclnet.Handle(mhandle)))
}

//export meshRmaDestroyContext
func meshRmaDestroyContext(rmaCtx C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA destroyContext", rmaCtx, &r)
	return C.ncclResult_t(plugin.RMADestroyContext(ncclnet.Handle(rmaCtx)))
}

//export meshRmaCloseColl
func meshRmaCloseColl(collComm C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA closeColl", collComm, &r)
	return C.ncclResult_t(plugin.RMACloseColl(ncclnet.Handle(collComm)))
}

//export meshRmaCloseListen
func meshRmaCloseListen(listenComm C.uintptr_t) (r C.ncclResult_t) {
	defer caught("RMA closeListen", listenComm, &r)
	return C.ncclResult_t(plugin.RMACloseListen(ncclnet.Handle(listenComm)))
}

//export meshRmaPut
func meshRmaPut(rmaCtx C.uintptr_t, context C.int, srcOff C.uint64_t, srcMhandle C.uintptr_t, size C.size_t, dstOff C.uint64_t,
	dstMhandle C.uintptr_t, rank C.uint32_t, request *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("iput", rmaCtx, &r)
	q, res := plugin.RMAPut(ncclnet.Handle(rmaCtx), int(context), within(srcMhandle, srcOff), uint64(size), within(dstMhandle, dstOff),
		int(rank), nil)
	*request = C.uintptr_t(q)
	return C.ncclResult_t(res)
}

//export meshRmaPutSignal
func meshRmaPutSignal(rmaCtx C.uintptr_t, context C.int, srcOff C.uint64_t, srcMhandle C.uintptr_t, size C.size_t, dstOff C.uint64_t,
	dstMhandle C.uintptr_t, rank C.uint32_t, signalOff C.uint64_t, signalMhandle C.uintptr_t, signalValue C.uint64_t,
	signalOp C.uint32_t, request *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("iputSignal", rmaCtx, &r)
	s := ncclnet.RMASignal{Word: within(signalMhandle, signalOff), Op: uint32(signalOp), Value: uint64(signalValue)}
	q, res := plugin.RMAPut(ncclnet.Handle(rmaCtx), int(context), within(srcMhandle, srcOff), uint64(size), within(dstMhandle, dstOff),
		int(rank), &s)
	*request = C.uintptr_t(q)
	return C.ncclResult_t(res)
}

//export meshRmaGet
func meshRmaGet(rmaCtx C.uintptr_t, context C.int, remoteOff C.uint64_t, remoteMhandle C.uintptr_t, size C.size_t, localOff C.uint64_t,
	localMhandle C.uintptr_t, rank C.uint32_t, request *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("iget", rmaCtx, &r)
	q, res := plugin.RMAGet(ncclnet.Handle(rmaCtx), int(context), within(remoteMhandle, remoteOff), uint64(size),
		within(localMhandle, localOff), int(rank))
	*request = C.uintptr_t(q)
	return C.ncclResult_t(res)
}

func within(mhandle C.uintptr_t, offset C.uint64_t) ncclnet.RMARange {
	return ncclnet.RMARange{Window: ncclnet.Handle(mhandle), Offset: uint64(offset)}
}

//export meshRmaFlush
func meshRmaFlush(rmaCtx C.uintptr_t, context C.int, rank C.uint32_t, request *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("iflush", rmaCtx, &r)
	q, res := plugin.RMAFlush(ncclnet.Handle(rmaCtx), int(context), int(rank))
	*request = C.uintptr_t(q)
	return C.ncclResult_t(res)
}

//export meshRmaTest
func meshRmaTest(collComm, request C.uintptr_t, done *C.int) (r C.ncclResult_t) {
	defer caught("test", collComm, &r)
	finished, res := plugin.RMATest(ncclnet.Handle(collComm), rma.Request(request))
	*done = flag(finished)
	return C.ncclResult_t(res)
}

//export meshRmaProgress
func meshRmaProgress(rmaCtx C.uintptr_t) (r C.ncclResult_t) {
	defer caught("rmaProgress", rmaCtx, &r)
	return C.ncclResult_t(plugin.RMAProgress(ncclnet.Handle(rmaCtx)))
}

//export meshRmaLastError
func meshRmaLastError(rmaCtx C.uintptr_t, failed *C.int) (r C.ncclResult_t) {
	defer caught("queryLastError", rmaCtx, &r)
	lost, res := plugin.RMALastError(ncclnet.Handle(rmaCtx))
	*failed = flag(lost)
	return C.ncclResult_t(res)
}
