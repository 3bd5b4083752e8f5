package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// toy is a driver with one device and no descriptors. What it does not have panics.
type toy struct {
	Driver
	calls  []string
	events chan AsyncEvent
}

func (d *toy) Name() string { return "toy" }
func (d *toy) Missing(verb string) string {
	if verb == "reg_dmabuf_mr" {
		return "toy_dmabuf"
	}
	return ""
}
func (d *toy) Devices() ([]DeviceInfo, error)    { return []DeviceInfo{{Name: "toy0", GUID: 7}}, nil }
func (d *toy) EventText(uint32) string           { return "" }
func (d *toy) CloseDevice(uintptr) syscall.Errno { return d.called("close_device") }
func (d *toy) AllocPD(uintptr) (uintptr, syscall.Errno) {
	return 2, d.called("alloc_pd")
}
func (d *toy) DeallocPD(uintptr) syscall.Errno          { return d.called("dealloc_pd") }
func (d *toy) DestroyCompChannel(uintptr) syscall.Errno { return d.called("destroy_comp_channel") }
func (d *toy) DestroyCQ(uintptr) syscall.Errno          { return d.called("destroy_cq") }
func (d *toy) DestroyQP(uintptr) syscall.Errno          { return d.called("destroy_qp") }
func (d *toy) AckAsyncEvent(*AsyncEvent)                { d.called("ack_async_event") }

func (d *toy) called(verb string) syscall.Errno {
	d.calls = append(d.calls, verb)
	return 0
}

func (d *toy) OpenDevice(name string, guid uint64) (ContextInfo, error) {
	if name != "toy0" || guid != 7 {
		return ContextInfo{}, &Error{Op: "open_device", Device: name, Errno: syscall.ENODEV}
	}
	return ContextInfo{Handle: 1, CmdFD: -1, AsyncFD: -1}, nil
}

func (d *toy) CreateCompChannel(uintptr) (ChannelInfo, syscall.Errno) {
	return ChannelInfo{Handle: 3, FD: -1}, 0
}

func (d *toy) GetCQEvent(uintptr, *[2]uintptr) (uintptr, syscall.Errno) { return 0, syscall.EAGAIN }

func (d *toy) CreateCQ(_ uintptr, _ int, ch uintptr) (CQInfo, syscall.Errno) {
	if ch != 3 {
		return CQInfo{}, syscall.EINVAL
	}
	return CQInfo{Handle: 4, Queue: d}, 0
}

func (d *toy) CreateQP(_ uintptr, c *QPCreate) (QPInfo, syscall.Errno) {
	if c.SendCQ != 4 || c.RecvCQ != 4 {
		return QPInfo{}, syscall.EINVAL
	}
	return QPInfo{Handle: 5, Num: 55, MaxInline: c.Cap.MaxInlineData, Queue: d}, 0
}

func (d *toy) Events(uintptr) (EventSource, error) { return d, nil }
func (d *toy) FD() int                             { return -1 }
func (d *toy) Close() error                        { close(d.events); return nil }
func (d *toy) Next(e *AsyncEvent) (ok bool)        { *e, ok = <-d.events; return ok }

func (d *toy) PostSend(wr *SendWR) (int32, *SendWR)   { return int32(syscall.ENOMEM), wr }
func (d *toy) PostRecv(*RecvWR) (int32, *RecvWR)      { return 0, nil }
func (d *toy) ReqNotify(solicited bool) syscall.Errno { return d.called("req_notify") }
func (d *toy) Poll(wc []WC) int32 {
	wc[0].WRID = 9
	return 1
}

// All objects work over a driver that has neither a library nor descriptors.
func TestAnotherDriver(t *testing.T) {
	d := &toy{events: make(chan AsyncEvent)}
	l := Use(d)
	devices, err := l.Devices()
	if err != nil || len(devices) != 1 || devices[0].String() != "toy0" {
		t.Fatal(devices, err)
	}
	c, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if c.Library() != l || c.FDs() != [2]int{-1, -1} || c.EventsFD() != -1 {
		t.Errorf("library %p, descriptors %v, %d", c.Library(), c.FDs(), c.EventsFD())
	}
	pd, err1 := c.AllocPD()
	ch, err2 := c.CreateCompChannel()
	cq, err3 := c.CreateCQ(8, ch)
	if err := errors.Join(err1, err2, err3, ch.SetNonblock()); err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, MaxInline: 32, Type: IBV_QPT_RC})
	if err != nil {
		t.Fatal(err)
	}
	if qp.Num() != 55 || qp.MaxInline() != 32 {
		t.Errorf("queue pair %d with %d bytes inline", qp.Num(), qp.MaxInline())
	}
	wr, wc := &SendWR{}, make([]WC, 2)
	if bad, err := qp.PostSend(wr); bad != wr || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("post_send: %p, %v", bad, err)
	}
	if _, err := qp.PostRecv(&RecvWR{}); err != nil {
		t.Error(err)
	}
	if n, err := cq.Poll(wc); n != 1 || err != nil || wc[0].WRID != 9 {
		t.Errorf("poll: %d, %v, %+v", n, err, wc[0])
	}
	if _, err := ch.Drain(); err != nil {
		t.Error(err)
	}
	if err := cq.ReqNotify(false); err != nil {
		t.Error(err)
	}
	if _, err := pd.RegDmaBufMR(0, 1, 0, 0, 0); !errors.Is(err, ErrNotSupported) ||
		err.Error() != "ibv: reg_dmabuf_mr on toy0: operation not supported (ENOTSUP): toy has no toy_dmabuf; a newer rdma-core has" {
		t.Errorf("a verb that is missing: %v", err)
	}
	var got []Event
	stop, err := c.Events(func(e Event) { got = append(got, e) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.events <- AsyncEvent{Type: IBV_EVENT_QP_FATAL, Element: 5, QPN: 55}
	d.events <- AsyncEvent{Type: IBV_EVENT_PORT_ERR, Element: 1}
	stop()
	if len(got) != 2 || got[0].QP != qp || got[0].QPN != 55 || got[1].Port != 1 || got[1].Name != "IBV_EVENT_PORT_ERR" {
		t.Errorf("events: %+v", got)
	}
	closeAll(t, qp, cq, ch, pd, c)
	want := []string{"alloc_pd", "req_notify", "ack_async_event", "ack_async_event", "destroy_qp", "destroy_cq",
		"destroy_comp_channel", "dealloc_pd", "close_device"}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if live := Live(); len(live) != 0 {
		t.Errorf("left open: %v", live)
	}
}

// The data path over either driver allocates nothing.
func TestAnotherDriverAllocatesNothing(t *testing.T) {
	d := &toy{}
	cq := &CQ{info: CQInfo{Queue: d}}
	qp := &QP{info: QPInfo{Queue: d}}
	wc, wr := make([]WC, 1), &RecvWR{}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = cq.Poll(wc)
		_, _ = qp.PostRecv(wr)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
