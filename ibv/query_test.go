package ibv

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPortSpeed(t *testing.T) {
	tests := []struct {
		name  string
		flags []string
		setup func(s standin)
		want  int
	}{
		{"asked of the library", nil, nil, 200_000},
		{"not known to the device", nil, func(s standin) { s.fail("ibv_query_port_speed", syscall.EOPNOTSUPP) }, 100_000},
		{"old library", []string{"-DRELEASE=12"}, nil, 100_000},
		{"XDR, old library", []string{"-DRELEASE=12"}, func(s standin) { s.call("standin_speed_ex", 256) }, 800_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := loadStandin(t, tt.flags...)
			c := s.open()
			if tt.setup != nil {
				tt.setup(s)
			}
			if got, err := c.PortSpeed(1); err != nil || got != tt.want {
				t.Errorf("got %d, %v, want %d Mb/s", got, err, tt.want)
			}
		})
	}
	s := loadStandin(t, "-DRELEASE=12")
	s.call("standin_speed_ex", 3)
	if _, err := s.open().PortSpeed(1); err == nil || !strings.Contains(err.Error(), "active_speed 32 (extended 3)") {
		t.Errorf("a speed nobody knows: %v", err)
	}
}

func TestSpeedTable(t *testing.T) {
	tests := []struct {
		width, speed uint8
		ex           uint32
		want         int
	}{
		{1, 1, 0, 2_500}, {2, 1, 0, 10_000}, {2, 4, 0, 40_000}, {2, 8, 0, 40_000}, {2, 16, 0, 56_000}, {1, 32, 0, 25_000},
		{2, 32, 0, 100_000}, {16, 64, 0, 100_000}, {2, 64, 0, 200_000}, {2, 128, 0, 400_000}, {4, 128, 0, 800_000},
		{8, 2, 0, 60_000}, {2, 128, 256, 800_000}, {2, 0, 0, 0}, {0, 32, 0, 0}, {3, 32, 0, 0}, {2, 32, 512, 0},
	}
	for _, tt := range tests {
		got, ok := (&PortAttr{ActiveWidth: tt.width, ActiveSpeed: tt.speed, ActiveSpeedEx: tt.ex}).Speed()
		if ok != (tt.want != 0) || ok && got != tt.want {
			t.Errorf("width %d, speed %d/%d: got %d, %t, want %d", tt.width, tt.speed, tt.ex, got, ok, tt.want)
		}
	}
}

func TestMaskFaults(t *testing.T) {
	const init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
	const rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
	const rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC
	const fine = "the attributes are the right ones, so one of their values is out of range for this device"
	const none = "there is no such change of state for a reliable connection"
	tests := []struct {
		from, to, mask uint32
		want           string
	}{
		{IBV_QPS_RESET, IBV_QPS_INIT, init, fine},
		{IBV_QPS_RESET, IBV_QPS_INIT, init &^ IBV_QP_PORT, "missing IBV_QP_PORT"},
		{IBV_QPS_RESET, IBV_QPS_INIT, init | IBV_QP_AV | IBV_QP_QKEY, "not allowed IBV_QP_QKEY, IBV_QP_AV"},
		{IBV_QPS_INIT, IBV_QPS_RTR, rtr | IBV_QP_ACCESS_FLAGS, fine},
		{IBV_QPS_INIT, IBV_QPS_RTR, rtr&^IBV_QP_AV | IBV_QP_PORT, "missing IBV_QP_AV; not allowed IBV_QP_PORT"},
		{IBV_QPS_RTR, IBV_QPS_RTS, rts | IBV_QP_CUR_STATE, fine},
		{IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE, "missing IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_SQ_PSN"},
		{IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS, fine},
		{IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE, fine},
		{IBV_QPS_RESET, IBV_QPS_RTR, rtr, none},
		{IBV_QPS_ERR, IBV_QPS_RTS, rts, none},
		{IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_STATE, fine},
		{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QP_STATE | IBV_QP_PORT, "not allowed IBV_QP_PORT"},
		{IBV_QPS_RESET, IBV_QPS_INIT, init | 1<<30, "not allowed IBV_QP(1073741824)"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, maskFaults(tt.from, tt.to, tt.mask)); diff != "" {
			t.Errorf("%s to %s with %#x (-want +got):\n%s", stateName(tt.from), stateName(tt.to), tt.mask, diff)
		}
	}
}

func TestModifyErrors(t *testing.T) {
	p := newPair(t)
	q := p.qp
	toInit := &QPAttr{QPState: IBV_QPS_INIT, PortNum: 1}
	p.s.fail("ibv_modify_qp", syscall.EINVAL)
	err := q.Modify(toInit, IBV_QP_STATE|IBV_QP_PORT)
	if want := "ibv: modify_qp on standin0 port 1: invalid argument (EINVAL): queue pair " + hex(q.Num()) +
		" from RESET to INIT; missing IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := q.Modify(toInit, IBV_QP_STATE|IBV_QP_PORT); err != nil {
		t.Fatal(err)
	}

	toRTR := &QPAttr{QPState: IBV_QPS_RTR, AHAttr: AHAttr{GRH: GlobalRoute{DGID: GID{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 7, 15: 2}, SGIDIndex: 3}}}
	for errno, want := range map[syscall.Errno]string{
		syscall.ETIMEDOUT:   "ibv: modify_qp on standin0 port 1: connection timed out (ETIMEDOUT): queue pair " + hex(q.Num()) + " from INIT to RTR; the neighbour 192.168.7.2 did not answer (ARP or ND) to source GID index 3: check its address, its link and both network masks",
		syscall.ENETUNREACH: "ibv: modify_qp on standin0 port 1: network is unreachable (ENETUNREACH): queue pair " + hex(q.Num()) + " from INIT to RTR; there is no route to 192.168.7.2 from source GID index 3",
	} {
		p.s.fail("ibv_modify_qp", errno)
		if err := q.Modify(toRTR, IBV_QP_STATE|IBV_QP_AV); err == nil || err.Error() != want || !errors.Is(err, errno) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestStatusString(t *testing.T) {
	loadStandin(t)
	old := current.Load()
	defer current.Store(old)
	current.Store(nil)
	if got := StatusString(IBV_WC_RETRY_EXC_ERR); got != "IBV_WC_RETRY_EXC_ERR" {
		t.Errorf("without a library: %q", got)
	}
	if got := StatusString(99); got != "IBV_WC(99)" {
		t.Errorf("a status nobody knows: %q", got)
	}
	current.Store(old)
	if got := StatusString(IBV_WC_REM_ACCESS_ERR); got == "IBV_WC_REM_ACCESS_ERR" || got == "" {
		t.Errorf("with a library: %q", got)
	}
}

func hex(n uint32) string { return fmt.Sprintf("%#x", n) }
