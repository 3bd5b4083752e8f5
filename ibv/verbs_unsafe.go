package ibv

// This file has one function per verb, under the verb's C prototype. Objects are the addresses that the library returned and
// must be live; pointers to Go values are used during the call only.

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/internal/ccall"
)

// struct ibv_device **ibv_get_device_list(int *num_devices)
func (l *libibverbs) getDeviceList() (list uintptr, n int, errno syscall.Errno) {
	var count int32
	list, errno = call(l.fn.getDeviceList, uintptr(unsafe.Pointer(&count)), 0, 0, 0, 0, 0)
	return list, int(count), errno
}

// void ibv_free_device_list(struct ibv_device **list)
func (l *libibverbs) freeDeviceList(list uintptr) { call(l.fn.freeDeviceList, list, 0, 0, 0, 0, 0) }

// const char *ibv_get_device_name(struct ibv_device *device)
func (l *libibverbs) deviceName(device uintptr) string {
	p, _ := call(l.fn.getDeviceName, device, 0, 0, 0, 0, 0)
	return goString(p)
}

// __be64 ibv_get_device_guid(struct ibv_device *device)
func (l *libibverbs) deviceGUID(device uintptr) uint64 {
	v, _ := call(l.fn.getDeviceGUID, device, 0, 0, 0, 0, 0)
	return bigEndian(uint64(v))
}

// struct ibv_context *ibv_open_device(struct ibv_device *device)
func (l *libibverbs) openDevice(device uintptr) (uintptr, syscall.Errno) {
	p, errno := call(l.fn.openDevice, device, 0, 0, 0, 0, 0)
	return p, absent(p, errno)
}

// int ibv_close_device(struct ibv_context *context)
func (l *libibverbs) CloseDevice(ctx uintptr) syscall.Errno {
	return failure(call(l.fn.closeDevice, ctx, 0, 0, 0, 0, 0))
}

// int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr)
func (l *libibverbs) QueryDevice(ctx uintptr, attr *DeviceAttr) syscall.Errno {
	return failure(call(l.fn.queryDevice, ctx, uintptr(unsafe.Pointer(attr)), 0, 0, 0, 0))
}

// int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *port_attr)
//
// The exported function knows the first 48 bytes only. Contexts that are "extended" have, in front of them, the full one:
//
// int (*query_port)(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr, size_t port_attr_len)
func (l *libibverbs) QueryPort(ctx uintptr, port uint8, attr *PortAttr) syscall.Errno {
	*attr = PortAttr{}
	if full := extension(ctx, verbsQueryPort); full != 0 {
		return failure(call(full, ctx, uintptr(port), uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr), 0, 0))
	}
	return failure(call(l.fn.queryPort, ctx, uintptr(port), uintptr(unsafe.Pointer(attr)), 0, 0, 0))
}

// extension returns the function at a (negative) offset from an extended context, or 0.
func extension(ctx uintptr, offset int) uintptr {
	if at[cContext](ctx).abiCompat != ^uintptr(0) {
		return 0
	}
	if have := *at[uintptr](uintptr(int(ctx) + verbsSize)); have < uintptr(-offset)+unsafe.Sizeof(cContext{}) {
		return 0
	}
	return *at[uintptr](uintptr(int(ctx) + offset))
}

// int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed)
func (l *libibverbs) QueryPortSpeed(ctx uintptr, port uint8) (uint64, syscall.Errno) {
	if l.fn.queryPortSpeed == 0 {
		return 0, syscall.EOPNOTSUPP
	}
	var speed uint64
	errno := failure(call(l.fn.queryPortSpeed, ctx, uintptr(port), uintptr(unsafe.Pointer(&speed)), 0, 0, 0))
	return speed, errno
}

// int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
func (l *libibverbs) getAsyncEvent(ctx uintptr, e *AsyncEvent) syscall.Errno {
	var c asyncEvent
	if errno := failure(call(l.fn.getAsyncEvent, ctx, uintptr(unsafe.Pointer(&c)), 0, 0, 0, 0)); errno != 0 {
		return errno
	}
	*e = AsyncEvent{Type: c.eventType, Element: c.element}
	if ofQP(c.eventType) {
		e.QPN = at[cQP](c.element).qpNum // alive until the event is acknowledged
	}
	return 0
}

// void ibv_ack_async_event(struct ibv_async_event *event)
func (l *libibverbs) AckAsyncEvent(e *AsyncEvent) {
	c := asyncEvent{element: e.Element, eventType: e.Type}
	call(l.fn.ackAsyncEvent, uintptr(unsafe.Pointer(&c)), 0, 0, 0, 0, 0)
}

// struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
func (l *libibverbs) AllocPD(ctx uintptr) (uintptr, syscall.Errno) {
	p, errno := call(l.fn.allocPD, ctx, 0, 0, 0, 0, 0)
	return p, absent(p, errno)
}

// int ibv_dealloc_pd(struct ibv_pd *pd)
func (l *libibverbs) DeallocPD(pd uintptr) syscall.Errno {
	return failure(call(l.fn.deallocPD, pd, 0, 0, 0, 0, 0))
}

// struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
//
// Which flags are optional only the newer verb knows; where it is missing they are dropped.
func (l *libibverbs) RegMR(pd, addr, length uintptr, access uint32) (MRInfo, syscall.Errno) {
	if access&IBV_ACCESS_OPTIONAL_RANGE != 0 && l.fn.regMRIova2 != 0 {
		return l.regMRIova2(pd, addr, length, access)
	}
	p, errno := call(l.fn.regMR, pd, addr, length, uintptr(access&^IBV_ACCESS_OPTIONAL_RANGE), 0, 0)
	return region(p, absent(p, errno))
}

// region reads what C says of a region.
func region(mr uintptr, errno syscall.Errno) (MRInfo, syscall.Errno) {
	if errno != 0 {
		return MRInfo{}, errno
	}
	c := at[cMR](mr)
	return MRInfo{Handle: mr, LKey: c.lkey, RKey: c.rkey}, 0
}

// struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
func (l *libibverbs) regMRIova2(pd, addr, length uintptr, access uint32) (MRInfo, syscall.Errno) {
	p, errno := call(l.fn.regMRIova2, pd, addr, length, addr, uintptr(access), 0)
	return region(p, absent(p, errno))
}

// struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
func (l *libibverbs) RegDmabufMR(pd uintptr, offset, length, iova uint64, fd int, access uint32) (MRInfo, syscall.Errno) {
	if l.fn.regDmabufMR == 0 {
		return MRInfo{}, syscall.EOPNOTSUPP
	}
	p, errno := call(l.fn.regDmabufMR, pd, uintptr(offset), uintptr(length), uintptr(iova), uintptr(fd), uintptr(access))
	return region(p, absent(p, errno))
}

// int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *buf, size_t buf_len)
func (l *libibverbs) DataDirectPath(ctx uintptr) (string, syscall.Errno) {
	fn, reg := l.mlx5.find()
	if fn == 0 || reg == 0 {
		return "", syscall.EOPNOTSUPP
	}
	path := new([4096]byte) // PATH_MAX
	errno := failure(call(fn, ctx, uintptr(unsafe.Pointer(path)), uintptr(len(path)-1), 0, 0, 0))
	if errno != 0 {
		return "", errno
	}
	return unix.ByteSliceToString(path[:]), 0
}

// struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
//
//	int mlx5_access)
func (l *libibverbs) RegDataDirectMR(pd uintptr, offset, length, iova uint64, fd int, access uint32) (MRInfo, syscall.Errno) {
	_, fn := l.mlx5.find()
	if fn == 0 {
		return MRInfo{}, syscall.EOPNOTSUPP
	}
	p, errno := ccall.Errno(libc().errnoLocation, fn, pd, uintptr(offset), uintptr(length), uintptr(iova), uintptr(fd), uintptr(access), mlx5AccessDataDirect)
	return region(p, absent(p, errno))
}

// int ibv_dereg_mr(struct ibv_mr *mr)
func (l *libibverbs) DeregMR(mr uintptr) syscall.Errno {
	return failure(call(l.fn.deregMR, mr, 0, 0, 0, 0, 0))
}

// struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
func (l *libibverbs) CreateCompChannel(ctx uintptr) (ChannelInfo, syscall.Errno) {
	p, errno := call(l.fn.createCompChannel, ctx, 0, 0, 0, 0, 0)
	if errno = absent(p, errno); errno != 0 {
		return ChannelInfo{}, errno
	}
	return ChannelInfo{Handle: p, FD: int(at[cCompChannel](p).fd)}, 0
}

// int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
func (l *libibverbs) DestroyCompChannel(ch uintptr) syscall.Errno {
	return failure(call(l.fn.destroyCompChannel, ch, 0, 0, 0, 0, 0))
}

// struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
//
//	int comp_vector)
func (l *libibverbs) CreateCQ(ctx uintptr, entries int, ch uintptr) (CQInfo, syscall.Errno) {
	p, errno := call(l.fn.createCQ, ctx, uintptr(entries), 0, ch, 0, 0)
	if errno = absent(p, errno); errno != 0 {
		return CQInfo{}, errno
	}
	return CQInfo{Handle: p}, 0
}

// int ibv_destroy_cq(struct ibv_cq *cq)
func (l *libibverbs) DestroyCQ(cq uintptr) syscall.Errno {
	return failure(call(l.fn.destroyCQ, cq, 0, 0, 0, 0, 0))
}

// int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
//
// out is room for what C says: the queue, and its context.
func (l *libibverbs) GetCQEvent(ch uintptr, out *[2]uintptr) (uintptr, syscall.Errno) {
	errno := failure(call(l.fn.getCQEvent, ch, uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&out[1])), 0, 0, 0))
	return out[0], errno
}

// void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
func (l *libibverbs) AckCQEvents(cq uintptr, n int) {
	call(l.fn.ackCQEvents, cq, uintptr(n), 0, 0, 0, 0)
}

// struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
func (l *libibverbs) CreateQP(pd uintptr, init *QPCreate) (QPInfo, syscall.Errno) {
	attr := &qpInitAttr{sendCQ: init.SendCQ, recvCQ: init.RecvCQ, cap: init.Cap, qpType: init.Type}
	if init.SigAll {
		attr.sqSigAll = 1
	}
	p, errno := call(l.fn.createQP, pd, uintptr(unsafe.Pointer(attr)), 0, 0, 0, 0)
	if errno = absent(p, errno); errno != 0 {
		return QPInfo{}, errno
	}
	return QPInfo{Handle: p, Num: at[cQP](p).qpNum, MaxInline: attr.cap.MaxInlineData}, 0
}

// int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
func (l *libibverbs) ModifyQP(qp uintptr, attr *QPAttr, mask uint32) syscall.Errno {
	return failure(call(l.fn.modifyQP, qp, uintptr(unsafe.Pointer(attr)), uintptr(mask), 0, 0, 0))
}

// int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init_attr)
func (l *libibverbs) QueryQP(qp uintptr, attr *QPAttr, mask uint32) syscall.Errno {
	var init qpInitAttr
	return failure(call(l.fn.queryQP, qp, uintptr(unsafe.Pointer(attr)), uintptr(mask), uintptr(unsafe.Pointer(&init)), 0, 0))
}

// int ibv_destroy_qp(struct ibv_qp *qp)
func (l *libibverbs) DestroyQP(qp uintptr) syscall.Errno {
	return failure(call(l.fn.destroyQP, qp, 0, 0, 0, 0, 0))
}

// int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
func (l *libibverbs) QueryECE(qp uintptr, ece *ECE) syscall.Errno {
	if l.fn.queryECE == 0 {
		return syscall.EOPNOTSUPP
	}
	return failure(call(l.fn.queryECE, qp, uintptr(unsafe.Pointer(ece)), 0, 0, 0, 0))
}

// int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
func (l *libibverbs) SetECE(qp uintptr, ece *ECE) syscall.Errno {
	if l.fn.setECE == 0 {
		return syscall.EOPNOTSUPP
	}
	return failure(call(l.fn.setECE, qp, uintptr(unsafe.Pointer(ece)), 0, 0, 0, 0))
}

// int ibv_fork_init(void)
func (l *libibverbs) ForkInit() syscall.Errno {
	if l.fn.forkInit == 0 {
		return syscall.EOPNOTSUPP
	}
	return failure(call(l.fn.forkInit, 0, 0, 0, 0, 0, 0))
}

// const char *ibv_wc_status_str(enum ibv_wc_status status)
func (l *libibverbs) StatusText(status uint32) string {
	if l.fn.wcStatusStr == 0 {
		return ""
	}
	p, _ := call(l.fn.wcStatusStr, uintptr(status), 0, 0, 0, 0, 0)
	return goString(p)
}

// const char *ibv_event_type_str(enum ibv_event_type event)
func (l *libibverbs) EventText(event uint32) string {
	if l.fn.eventTypeStr == 0 {
		return ""
	}
	p, _ := call(l.fn.eventTypeStr, uintptr(event), 0, 0, 0, 0, 0)
	return goString(p)
}

// The operations below are called on the data path, through the addresses that the context has for its device.

// int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
func postSend(fn, qp uintptr, wr *SendWR) (result int32, bad *SendWR) {
	r, b := ccall.Out(fn, qp, uintptr(unsafe.Pointer(wr)))
	return int32(r), at[SendWR](b)
}

// int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
func postRecv(fn, qp uintptr, wr *RecvWR) (result int32, bad *RecvWR) {
	r, b := ccall.Out(fn, qp, uintptr(unsafe.Pointer(wr)))
	return int32(r), at[RecvWR](b)
}

// int (*poll_cq)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
func pollCQ(fn, cq uintptr, wc []WC) int32 {
	return int32(ccall.Call(fn, cq, uintptr(len(wc)), uintptr(unsafe.Pointer(unsafe.SliceData(wc))), 0, 0, 0))
}

// int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only)
func reqNotifyCQ(fn, cq uintptr, solicitedOnly bool) syscall.Errno {
	var only uintptr
	if solicitedOnly {
		only = 1
	}
	return failure(call(fn, cq, only, 0, 0, 0, 0))
}
