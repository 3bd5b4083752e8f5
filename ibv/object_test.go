package ibv

import (
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDevices(t *testing.T) {
	s := loadStandin(t)
	devices, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	type device struct {
		Name string
		GUID uint64
	}
	var got []device
	for _, d := range devices {
		got = append(got, device{d.Name(), d.info.GUID})
	}
	want := []device{
		{"standin0", 0x021122fffe334430},
		{"standin1", 0x021122fffe334431},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	s.fail("ibv_get_device_list", syscall.ENOSYS)
	if devices, err := s.Devices(); err != nil || len(devices) != 0 {
		t.Errorf("without RDMA: got %v, %v, want an empty list", devices, err)
	}
	s.fail("ibv_get_device_list", syscall.EPERM)
	if _, err := s.Devices(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v, want EPERM", err)
	}

	gone := &Device{lib: s.Library, info: DeviceInfo{Name: "standin1", GUID: 1}}
	if _, err := gone.Open(); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("opening a device that is gone: %v", err)
	}
}

func TestQueries(t *testing.T) {
	s := loadStandin(t)
	c := s.open()

	dev, err := c.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	if dev.MaxQPWR != 4096 || dev.PhysPortCnt != 1 {
		t.Errorf("device attributes: %+v", dev)
	}
	if fds := c.FDs(); fds[0] <= 2 || fds[1] <= 2 || fds[0] == fds[1] {
		t.Errorf("descriptors: %v", fds)
	}
	if _, err := c.QueryPort(2); err == nil || err.Error() != "ibv: query_port on standin0 port 2: invalid argument (EINVAL)" {
		t.Errorf("a port that does not exist: %v", err)
	}
}

// The exported query_port gives the first 48 bytes, an extended context all.
func TestQueryPort(t *testing.T) {
	common := PortAttr{
		State: IBV_PORT_ACTIVE, ActiveMTU: IBV_MTU_1024, MaxMsgSz: 1 << 30,
		LID: 7, ActiveWidth: 2, ActiveSpeed: 32, LinkLayer: IBV_LINK_LAYER_ETHERNET,
	}
	full := common
	full.ActiveSpeedEx = 256
	for _, tt := range []struct {
		name  string
		flags []string
		want  PortAttr
	}{
		{"plain", []string{"-DEXTENDED=0"}, common},
		{"extended", nil, full},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := loadStandin(t, tt.flags...)
			s.call("standin_speed_ex", 256)
			got, err := s.open().QueryPort(1)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestRegMR(t *testing.T) {
	const access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
	tests := []struct {
		name       string
		flags      []string
		access     uint32
		wantAccess uint32
		wantIova2  bool
	}{
		{"plain", nil, access, access, false},
		{"relaxed ordering", nil, access | IBV_ACCESS_RELAXED_ORDERING, access | IBV_ACCESS_RELAXED_ORDERING, true},
		{"relaxed ordering, old library", []string{"-DRELEASE=1"}, access | IBV_ACCESS_RELAXED_ORDERING, access, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, tt.flags...)
			mr, err := p.pd.RegMR(p.mem.Addr()+64, 128, tt.access)
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, mr)
			if got := uint32(p.s.call("standin_last_access")); got != tt.wantAccess {
				t.Errorf("access %#x reached the library, want %#x", got, tt.wantAccess)
			}
			if got := p.s.call("standin_last_reg_iova2") == 1; got != tt.wantIova2 {
				t.Errorf("reg_mr_iova2 called: %t, want %t", got, tt.wantIova2)
			}
			if mr.Addr() != p.mem.Addr()+64 || mr.LKey()>>8 != 0x111111 || mr.RKey()>>8 != 0x222222 {
				t.Errorf("region: %#x, keys %#x and %#x", mr.Addr(), mr.LKey(), mr.RKey())
			}
		})
	}
}

func TestRegDmaBufMR(t *testing.T) {
	p := newPair(t)
	mr, err := p.pd.RegDmaBufMR(4096, 1<<20, 0x7f0000000000, 9, IBV_ACCESS_LOCAL_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	if mr.Addr() != 0x7f0000000000 {
		t.Errorf("region: %#x", mr.Addr())
	}
	closeAll(t, mr)
	p.s.fail("ibv_reg_mr", syscall.EOPNOTSUPP)
	if _, err := p.pd.RegDmaBufMR(4096, 1<<20, 0, 9, 0); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a device without DMA-BUF: %v, want ErrNotSupported", err)
	}
}

func TestRegDmaBufMROldLibrary(t *testing.T) {
	p := newPair(t, "-DRELEASE=11")
	_, err := p.pd.RegDmaBufMR(4096, 1<<20, 0, 9, 0)
	if !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "ibv_reg_dmabuf_mr@IBVERBS_1.12") {
		t.Errorf("got %v, want ErrNotSupported naming the symbol", err)
	}
}

// Whether a device takes DMA-BUFs shows in how it refuses a bad descriptor. An errno that an earlier call left has no effect.
func TestTakesDMABufs(t *testing.T) {
	tests := []struct {
		name  string
		errno syscall.Errno // 0: what the library says of a descriptor that is none, EBADF
		flags []string
		want  bool
	}{
		{"EBADF", 0, nil, true},
		{"EINVAL", syscall.EINVAL, nil, true},
		{"EOPNOTSUPP", syscall.EOPNOTSUPP, nil, false},
		{"EPROTONOSUPPORT", syscall.EPROTONOSUPPORT, nil, false},
		{"ENOSYS", syscall.ENOSYS, nil, false},
		{"no ibv_reg_dmabuf_mr", 0, []string{"-DRELEASE=11"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, tt.flags...)
			p.s.fail("ibv_reg_mr", syscall.EOPNOTSUPP)
			if mr, err := p.pd.RegMR(p.mem.Addr(), 64, 0); err == nil { // leaves EOPNOTSUPP in errno
				closeAll(t, mr)
				t.Fatal("reg_mr did not fail")
			}
			if tt.errno != 0 {
				p.s.fail("ibv_reg_dmabuf_mr", tt.errno)
			}
			if got := p.pd.TakesDMABufs(); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

func TestECE(t *testing.T) {
	p := newPair(t)
	ece, err := p.qp.QueryECE()
	if err != nil || ece.VendorID != 0x15b3 || ece.Options != 5 {
		t.Fatalf("got %+v, %v", ece, err)
	}
	if err := p.qp.SetECE(&ece); err != nil {
		t.Error(err)
	}
	p.s.fail("ibv_query_ece", syscall.EOPNOTSUPP)
	if _, err := p.qp.QueryECE(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("query_ece that the device lacks: %v", err)
	}
}

func TestECEOldLibrary(t *testing.T) {
	p := newPair(t, "-DRELEASE=8")
	if _, err := p.qp.QueryECE(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("query_ece: %v, want ErrNotSupported", err)
	}
	if err := p.qp.SetECE(&ECE{}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("set_ece: %v, want ErrNotSupported", err)
	}
}

func TestQP(t *testing.T) {
	p := newPair(t)
	if p.qp.Num()&^0xff != 0xabcd00 {
		t.Errorf("number %#x", p.qp.Num())
	}
	if got := p.qp.MaxInline(); got != 64 {
		t.Errorf("%d bytes inline were granted, want 64", got)
	}
	want := QPAttr{QPState: IBV_QPS_RTR, PathMTU: IBV_MTU_4096, DestQPNum: 0xffffff, RQPSN: 0x123456,
		AHAttr: AHAttr{IsGlobal: 1, PortNum: 1, GRH: GlobalRoute{DGID: GID{15: 9}, SGIDIndex: 3, HopLimit: 64, TrafficClass: 106}}}
	if err := p.qp.Modify(&want, IBV_QP_STATE|IBV_QP_AV); err != nil {
		t.Fatal(err)
	}
	got, err := p.qp.Query(IBV_QP_STATE | IBV_QP_AV)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if s, err := p.qp.State(); err != nil || s != IBV_QPS_RTR {
		t.Errorf("state %d, %v", s, err)
	}
	if _, err := p.pd.CreateQP(QPInit{SendCQ: p.cq}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a queue pair without a receive queue: %v", err)
	}
}

// Every verb reports its failure, and leaves nothing behind.
func TestVerbsFail(t *testing.T) {
	p := newPair(t)
	attr := &QPAttr{QPState: IBV_QPS_INIT}
	tests := []struct {
		verb string
		op   string
		port uint8
		do   func() error
	}{
		{"ibv_open_device", "open_device", 0, func() error { _, err := p.ctx.device.Open(); return err }},
		{"ibv_query_device", "query_device", 0, func() error { _, err := p.ctx.QueryDevice(); return err }},
		{"ibv_query_port", "query_port", 1, func() error { _, err := p.ctx.QueryPort(1); return err }},
		{"ibv_query_port_speed", "query_port_speed", 1, func() error { _, err := p.ctx.PortSpeed(1); return err }},
		{"ibv_alloc_pd", "alloc_pd", 0, func() error { _, err := p.ctx.AllocPD(); return err }},
		{"ibv_create_comp_channel", "create_comp_channel", 0, func() error { _, err := p.ctx.CreateCompChannel(); return err }},
		{"ibv_create_cq", "create_cq", 0, func() error { _, err := p.ctx.CreateCQ(8, nil); return err }},
		{"ibv_create_qp", "create_qp", 0, func() error { _, err := p.pd.CreateQP(QPInit{SendCQ: p.cq, RecvCQ: p.cq}); return err }},
		{"ibv_reg_mr", "reg_mr", 0, func() error { _, err := p.pd.RegMR(p.mem.Addr(), 64, 0); return err }},
		{"ibv_modify_qp", "modify_qp", 0, func() error { return p.qp.Modify(attr, IBV_QP_STATE) }},
		{"ibv_query_qp", "query_qp", 0, func() error { _, err := p.qp.State(); return err }},
		{"poll_cq", "poll_cq", 0, func() error { _, err := p.cq.Poll(make([]WC, 1)); return err }},
		{"req_notify_cq", "req_notify_cq", 0, func() error { return p.cq.ReqNotify(false) }},
		{"ibv_destroy_qp", "destroy_qp", 0, p.qp.Close},
		{"ibv_dereg_mr", "dereg_mr", 0, p.mr.Close},
	}
	before := p.s.call("standin_live")
	for _, tt := range tests {
		p.s.fail(tt.verb, syscall.EIO)
		err := tt.do()
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, want an Error", tt.verb, err)
			continue
		}
		got := Error{Op: e.Op, Device: e.Device, Port: e.Port, Errno: e.Errno}
		if diff := cmp.Diff(Error{Op: tt.op, Device: "standin0", Port: tt.port, Errno: syscall.EIO}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.verb, diff)
		}
		if now := p.s.call("standin_live"); now != before {
			t.Fatalf("%s: %d C objects, there were %d", tt.verb, now, before)
		}
	}
}

func TestMemlockHint(t *testing.T) {
	p := newPair(t)
	for verb, do := range map[string]func() error{
		"ibv_reg_mr": func() error { _, err := p.pd.RegMR(p.mem.Addr(), 12345, 0); return err },
		"ibv_create_qp": func() error {
			_, err := p.pd.CreateQP(QPInit{SendCQ: p.cq, RecvCQ: p.cq, MaxSendWR: 12345})
			return err
		},
		"ibv_create_cq": func() error { _, err := p.ctx.CreateCQ(12345, nil); return err },
	} {
		p.s.fail(verb, syscall.ENOMEM)
		err := do()
		if !errors.Is(err, syscall.ENOMEM) {
			t.Fatalf("%s: %v", verb, err)
		}
		for _, want := range []string{"12345", "RLIMIT_MEMLOCK", "ulimit -l unlimited", "--ulimit memlock=-1"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", verb, err, want)
			}
		}
	}
}

func TestCloseOrder(t *testing.T) {
	p := newPair(t)
	ch, err := p.ctx.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := p.ctx.CreateCQ(8, ch)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		object closer
		want   string
	}{
		{p.ctx, "ibv: cannot close context standin0 before what was made from it: 1 protection domains, 1 completion channels, 2 completion queues still open"},
		{p.pd, "ibv: cannot close protection domain on standin0 before what was made from it: 1 memory regions, 1 queue pairs still open"},
		{p.cq, "ibv: cannot close completion queue on standin0 before what was made from it: 1 queue pairs still open"},
		{ch, "ibv: cannot close completion channel on standin0 before what was made from it: 1 completion queues still open"},
	} {
		if err := tt.object.Close(); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	want := map[string]int{"contexts": 1, "protection domains": 1, "memory regions": 1, "completion channels": 1,
		"completion queues": 2, "queue pairs": 1, "memories": 1}
	if diff := cmp.Diff(want, Live()); diff != "" {
		t.Errorf("live objects (-want +got):\n%s", diff)
	}

	objects := []closer{cq, ch, p.qp, p.cq, p.mr, p.pd, p.ctx}
	closeAll(t, objects...)
	closeAll(t, objects...) // once more: nothing to do

	for name, do := range map[string]func() error{
		"AllocPD":           func() error { _, err := p.ctx.AllocPD(); return err },
		"CreateCQ":          func() error { _, err := p.ctx.CreateCQ(8, nil); return err },
		"CreateCompChannel": func() error { _, err := p.ctx.CreateCompChannel(); return err },
		"QueryDevice":       func() error { _, err := p.ctx.QueryDevice(); return err },
		"QueryPort":         func() error { _, err := p.ctx.QueryPort(1); return err },
		"PortSpeed":         func() error { _, err := p.ctx.PortSpeed(1); return err },
		"Events":            func() error { _, err := p.ctx.Events(func(Event) {}, nil); return err },
		"RegMR":             func() error { _, err := p.pd.RegMR(0, 1, 0); return err },
		"CreateQP":          func() error { _, err := p.pd.CreateQP(QPInit{SendCQ: p.cq, RecvCQ: p.cq}); return err },
		"Modify":            func() error { return p.qp.Modify(&QPAttr{}, 0) },
		"State":             func() error { _, err := p.qp.State(); return err },
		"QueryECE":          func() error { _, err := p.qp.QueryECE(); return err },
		"SetECE":            func() error { return p.qp.SetECE(&ECE{}) },
		"PostSend":          func() error { _, err := p.qp.PostSend(&SendWR{}); return err },
		"PostRecv":          func() error { _, err := p.qp.PostRecv(&RecvWR{}); return err },
		"Poll":              func() error { _, err := p.cq.Poll(make([]WC, 1)); return err },
		"ReqNotify":         func() error { return p.cq.ReqNotify(false) },
		"Drain":             func() error { _, err := ch.Drain(); return err },
	} {
		if err := do(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v, want net.ErrClosed", name, err)
		}
	}
}

// Many goroutines create and close below one parent, and several close the same object.
func TestConcurrentLives(t *testing.T) {
	p := newPair(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				mr, err := p.pd.RegMR(p.mem.Addr(), 64, 0)
				if err != nil {
					t.Error(err)
					return
				}
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { closeAll(t, mr) })
				}
				both.Wait()
			}
		})
	}
	wg.Wait()
	if n := Live()["memory regions"]; n != 1 {
		t.Errorf("%d regions, want the pair's one", n)
	}
}
