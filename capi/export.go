package main

// #include "plugin.h"
import "C"

import "ncclmesh/ncclnet"

//export meshInit
func meshInit(ctx *C.uintptr_t, caller C.struct_mesh_caller, trafficClass C.int, logger C.ncclDebugLogger_t) (r C.ncclResult_t) {
	defer caught("init", 0, &r)
	h, res := plugin.Init(loggerFor(logger), callerOf(caller), int(trafficClass))
	*ctx = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshInitShared
func meshInitShared(caller C.struct_mesh_caller, logger C.ncclDebugLogger_t) (r C.ncclResult_t) {
	defer caught("init", 0, &r)
	return C.ncclResult_t(plugin.InitShared(loggerFor(logger), callerOf(caller)))
}

func callerOf(c C.struct_mesh_caller) ncclnet.Caller {
	return ncclnet.Caller{Interface: int(c.interface_version), Version: int(c.nccl_version), Profiler: uintptr(c.profiler)}
}

//export meshFinalize
func meshFinalize(ctx C.uintptr_t) (r C.ncclResult_t) {
	defer caught("finalize", ctx, &r)
	return C.ncclResult_t(plugin.Finalize(ncclnet.Handle(ctx)))
}

//export meshSettle
func meshSettle() {
	var r C.ncclResult_t
	defer caught("exit", 0, &r)
	plugin.FlushBeforeExit()
}

//export meshDevices
func meshDevices(ndev *C.int) (r C.ncclResult_t) {
	defer caught("devices", 0, &r)
	n, res := plugin.Devices()
	*ndev = C.int(n)
	return C.ncclResult_t(res)
}

//export meshProperties
func meshProperties(dev C.int, props *C.struct_mesh_properties) (r C.ncclResult_t) {
	defer caught("getProperties", 0, &r)
	p, res := plugin.Properties(int(dev))
	if res != C.ncclSuccess {
		return C.ncclResult_t(res)
	}
	*props = convert(&p)
	return C.ncclSuccess
}

// convert returns the properties in C's form.
func convert(p *ncclnet.Properties) C.struct_mesh_properties {
	return C.struct_mesh_properties{
		name:                intern(p.Name),
		pciPath:             intern(p.PCIPath),
		guid:                C.uint64_t(p.GUID),
		ptrSupport:          C.int(p.PtrSupport),
		regIsGlobal:         flag(p.RegIsGlobal),
		forceFlush:          flag(p.ForceFlush),
		speed:               C.int(p.Speed),
		port:                C.int(p.Port),
		latency:             C.float(p.Latency),
		maxComms:            C.int(p.MaxComms),
		maxRecvs:            C.int(p.MaxRecvs),
		netDeviceType:       C.int(p.NetDeviceType),
		netDeviceVersion:    C.int(p.NetDeviceVersion),
		maxP2pBytes:         C.size_t(p.MaxP2pBytes),
		maxCollBytes:        C.size_t(p.MaxCollBytes),
		maxMultiRequestSize: C.int(p.MaxMultiRequestSize),
		railId:              C.int16_t(p.RailID),
		planeId:             C.int16_t(p.PlaneID),
	}
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

//export meshAccept
func meshAccept(listenComm C.uintptr_t, recvComm *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("accept", listenComm, &r)
	h, res := plugin.Accept(ncclnet.Handle(listenComm))
	*recvComm = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRegMr
func meshRegMr(comm, data C.uintptr_t, size C.size_t, ptrType C.int, mhandle *C.uintptr_t) (r C.ncclResult_t) {
	defer caught("regMr", comm, &r)
	h, res := plugin.RegMr(ncclnet.Handle(comm), uintptr(data), uintptr(size), int(ptrType))
	*mhandle = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshRegMrDmaBuf
func meshRegMrDmaBuf(comm, data C.uintptr_t, size C.size_t, ptrType C.int, offset C.uint64_t, fd C.int,
	mhandle *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("regMrDmaBuf", comm, &r)
	h, res := plugin.RegMrDmaBuf(ncclnet.Handle(comm), uintptr(data), uintptr(size), int(ptrType), uint64(offset), int(fd))
	*mhandle = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshDeregMr
func meshDeregMr(comm, mhandle C.uintptr_t) (r C.ncclResult_t) {
	defer caught("deregMr", comm, &r)
	return C.ncclResult_t(plugin.DeregMr(ncclnet.Handle(comm), ncclnet.Handle(mhandle)))
}

//export meshIsend
func meshIsend(sendComm, data C.uintptr_t, size C.size_t, tag C.int, mhandle, phandle C.uintptr_t,
	request *C.uintptr_t,
) (r C.ncclResult_t) {
	defer caught("isend", sendComm, &r)
	h, res := plugin.Isend(ncclnet.Handle(sendComm), uintptr(data), int(size), int32(tag), ncclnet.Handle(mhandle), uintptr(phandle))
	*request = C.uintptr_t(h)
	return C.ncclResult_t(res)
}

//export meshCloseSend
func meshCloseSend(sendComm C.uintptr_t) (r C.ncclResult_t) {
	defer caught("closeSend", sendComm, &r)
	return C.ncclResult_t(plugin.CloseSend(ncclnet.Handle(sendComm)))
}

//export meshCloseRecv
func meshCloseRecv(recvComm C.uintptr_t) (r C.ncclResult_t) {
	defer caught("closeRecv", recvComm, &r)
	return C.ncclResult_t(plugin.CloseRecv(ncclnet.Handle(recvComm)))
}

//export meshCloseListen
func meshCloseListen(listenComm C.uintptr_t) (r C.ncclResult_t) {
	defer caught("closeListen", listenComm, &r)
	return C.ncclResult_t(plugin.CloseListen(ncclnet.Handle(listenComm)))
}
