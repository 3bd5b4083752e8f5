package ibv

import (
	"syscall"
	"time"
)

// A Driver does the verbs. There are two: libibverbs, which [Load] opens, and a simulation of adapters for tests, which
// [Use] takes.
//
// Objects are known by handles, which are not 0. A verb that fails returns its errno and leaves nothing behind; an optional
// verb that the driver lacks returns EOPNOTSUPP. A method may be called from any goroutine. What it is handed a pointer to
// it reads or fills in during the call only. Callers see to it that a handle is live, and that an object is destroyed after
// what was made from it.
//
// Posting and polling are no methods of the driver: the queues of libibverbs are called directly, and those of another
// driver are the [SendReceiver] and the [Completer] that it returns.
type Driver interface {
	// Name names the driver in errors: the file of a library.
	Name() string
	// Missing returns the symbol that an optional verb would need, "" where the driver has the verb.
	Missing(verb string) (symbol string)
	ForkInit() syscall.Errno

	Devices() ([]DeviceInfo, error)
	OpenDevice(name string, guid uint64) (ContextInfo, error)
	CloseDevice(ctx uintptr) syscall.Errno
	QueryDevice(ctx uintptr, attr *DeviceAttr) syscall.Errno
	QueryPort(ctx uintptr, port uint8, attr *PortAttr) syscall.Errno
	QueryPortSpeed(ctx uintptr, port uint8) (units uint64, _ syscall.Errno) // of 100 Mb/s

	// Events opens the asynchronous events of a device, of which there is one reader at a time. Each event that Next
	// returned is acknowledged, and the object that it speaks of is not destroyed before.
	Events(ctx uintptr) (EventSource, error)
	AckAsyncEvent(e *AsyncEvent)

	AllocPD(ctx uintptr) (pd uintptr, _ syscall.Errno)
	DeallocPD(pd uintptr) syscall.Errno
	// RegMR drops the optional flags of access that it does not know.
	RegMR(pd, addr, length uintptr, access uint32) (MRInfo, syscall.Errno)
	RegDmabufMR(pd uintptr, offset, length, iova uint64, fd int, access uint32) (MRInfo, syscall.Errno)
	DeregMR(mr uintptr) syscall.Errno

	// DataDirectPath returns the path below /sys of a device's function for GPU memory, or ENODEV where it has none.
	// RegDataDirectMR registers a DMA-BUF for that function.
	DataDirectPath(ctx uintptr) (string, syscall.Errno)
	RegDataDirectMR(pd uintptr, offset, length, iova uint64, fd int, access uint32) (MRInfo, syscall.Errno)

	CreateCompChannel(ctx uintptr) (ChannelInfo, syscall.Errno)
	DestroyCompChannel(ch uintptr) syscall.Errno
	// GetCQEvent takes an event of a channel; cq is the handle of its queue. It returns EAGAIN where there is none, unless
	// the channel has a descriptor that blocks.
	GetCQEvent(ch uintptr, room *[2]uintptr) (cq uintptr, _ syscall.Errno)
	AckCQEvents(cq uintptr, n int)
	CreateCQ(ctx uintptr, entries int, ch uintptr) (CQInfo, syscall.Errno) // ch is 0 for a queue without a channel
	DestroyCQ(cq uintptr) syscall.Errno

	CreateQP(pd uintptr, init *QPCreate) (QPInfo, syscall.Errno)
	ModifyQP(qp uintptr, attr *QPAttr, mask uint32) syscall.Errno
	QueryQP(qp uintptr, attr *QPAttr, mask uint32) syscall.Errno
	DestroyQP(qp uintptr) syscall.Errno
	QueryECE(qp uintptr, ece *ECE) syscall.Errno
	SetECE(qp uintptr, ece *ECE) syscall.Errno

	// StatusText and EventText return "" where the driver has no words of its own.
	StatusText(status uint32) string
	EventText(event uint32) string

	NewWaiter() (Waiter, error)
}

// DeviceInfo describes a device of a list.
type DeviceInfo struct {
	Name string
	GUID uint64 // the highest byte is the first one that tools print
}

// ContextInfo describes an open device.
type ContextInfo struct {
	Handle         uintptr
	CmdFD, AsyncFD int // -1 where there is no descriptor

	ops cContext // of libibverbs: the operations of the device
}

// MRInfo describes a memory region.
type MRInfo struct {
	Handle     uintptr
	LKey, RKey uint32
}

// ChannelInfo describes a completion channel.
type ChannelInfo struct {
	Handle uintptr
	FD     int // -1 where there is no descriptor
}

// CQInfo describes a completion queue.
type CQInfo struct {
	Handle uintptr
	Queue  Completer // nil with libibverbs
}

// QPCreate says what queue pair to create.
type QPCreate struct {
	SendCQ, RecvCQ uintptr
	Cap            QPCap
	Type           uint32
	SigAll         bool
}

// QPInfo describes a queue pair.
type QPInfo struct {
	Handle    uintptr
	Num       uint32
	MaxInline uint32       // as granted
	Queue     SendReceiver // nil with libibverbs
}

// A SendReceiver is the data path of a queue pair that is not libibverbs'. The methods return what the operations of
// libibverbs return: 0 or an errno, and the first request that was not posted.
type SendReceiver interface {
	PostSend(wr *SendWR) (result int32, bad *SendWR)
	PostRecv(wr *RecvWR) (result int32, bad *RecvWR)
}

// A Completer is the data path of a completion queue that is not libibverbs'.
type Completer interface {
	// Poll returns how many completions it has put into wc, or a negative number when the queue has overflowed.
	Poll(wc []WC) int32
	ReqNotify(solicitedOnly bool) syscall.Errno
}

// AsyncEvent is an asynchronous event as a driver hands it out.
type AsyncEvent struct {
	Type    uint32
	Element uintptr // handle of the queue pair or the completion queue, or number of the port
	QPN     uint32  // of an event of a queue pair
}

// An EventSource has the asynchronous events of a device.
type EventSource interface {
	// Next waits for an event. It returns false once the source is closed, and when the device is gone.
	Next(e *AsyncEvent) bool
	// FD is the descriptor that Next waits with, -1 where there is none.
	FD() int
	// Close makes Next return.
	Close() error
}

// A Waiter lets a thread wait for completion events. One goroutine waits; any may wake it.
type Waiter interface {
	// Again reports whether the thread is to look for completions again before it waits. It is told of each look,
	// whether something was found. Where waiting costs more than looking it answers true for a while.
	Again(found bool) bool
	// Wait returns when one of the channels has an event, when Wake was called since Wait last returned, and after
	// the timeout, which is none where it is negative. It may also return for no reason. Events are not taken.
	Wait(channels []*CompChannel, timeout time.Duration)
	Wake()
	// FD is the descriptor that the waiter needs, -1 where it needs none.
	FD() int
	Close() error
}
