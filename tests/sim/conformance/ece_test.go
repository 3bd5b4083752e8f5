package conformance

import (
	"errors"
	"syscall"

	"ncclmesh/ibv"
)

// What the two devices can do by enhanced connection establishment (ECE); the topology of the C library says the same.
const (
	eceVendor = 0x15b3
	eceFirst  = 0x10000007 // of rdma0
	eceSecond = 0x1000000d // of rdma1
	eceBoth   = eceFirst & eceSecond
)

// eceRows are about options that both ends agree on.
var eceRows = []row{
	on("both ends agree on what both can do", func(a, b *end) {
		a.options(eceFirst)
		b.w.must(b.setECE(eceFirst))
		b.options(0)
		b.w.must(b.to(rtr))
		b.options(eceBoth)
		b.w.must(b.to(rts))
		b.options(eceBoth)
		a.w.must(a.setECE(eceBoth), a.to(rtr), a.to(rts))
		a.options(eceBoth)
		for _, e := range []*end{a, b} {
			e.post(1, opWrite, 0, 100, 0)
			e.want(1, ok)
		}
	}, wish{state: initS}),
	on("options set in RESET take effect with INIT", func(a, b *end) {
		a.w.must(a.setECE(eceBoth), b.setECE(eceBoth))
		for _, s := range []uint32{initS, rtr, rts} {
			a.w.must(a.to(s), b.to(s))
			a.options(eceBoth)
		}
		a.post(1, opWrite, 0, 100, 0)
		a.want(1, ok)
	}, wish{fresh: true}),
	on("packets are lost where one end has no options", func(a, b *end) {
		a.w.must(a.setECE(eceBoth), a.to(rtr), a.to(rts), b.to(rtr), b.to(rts))
		a.post(1, opWrite, 0, 100, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
	}, wish{state: initS, timeout: 1, retry: 1}),
	on("packets are lost where one end set its options too late", func(a, b *end) {
		b.w.must(b.setECE(eceFirst), b.to(rtr), b.to(rts))
		a.w.must(a.to(rtr), a.setECE(eceBoth), a.to(rts))
		a.options(0)
		a.post(1, opWrite, 0, 100, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
	}, wish{state: initS, timeout: 1, retry: 1}),
	on("a reset queue pair has no options", func(a, b *end) {
		a.w.must(a.setECE(1), a.to(initS))
		a.options(1)
		a.w.must(a.to(reset))
		a.options(eceFirst)
		for _, s := range []uint32{initS, rtr, rts} {
			a.w.must(a.to(s), b.to(s))
		}
		a.post(1, opWrite, 0, 100, 0)
		a.want(1, ok)
	}, wish{fresh: true}),
	on("options that are refused", func(a, b *end) {
		for _, tt := range []struct {
			ece  ibv.ECE
			want error
		}{
			{ibv.ECE{VendorID: eceVendor, Options: 1, CompMask: 1}, syscall.EINVAL},
			{ibv.ECE{VendorID: eceVendor + 1, Options: 1}, syscall.EINVAL},
			{ibv.ECE{}, syscall.EOPNOTSUPP},
		} {
			if err := a.qp.SetECE(&tt.ece); !errors.Is(err, tt.want) {
				a.w.Errorf("set %+v: %v, want %v", tt.ece, err, tt.want)
			}
			a.options(eceFirst)
		}
	}, wish{state: initS}),
}

func (e *end) setECE(options uint32) error {
	return e.qp.SetECE(&ibv.ECE{VendorID: eceVendor, Options: options})
}

// options wants the queue pair to tell these options.
func (e *end) options(want uint32) {
	e.w.Helper()
	got, err := e.qp.QueryECE()
	if err != nil || got != (ibv.ECE{VendorID: eceVendor, Options: want}) {
		e.w.Fatalf("options %+v, %v, want %#x", got, err, want)
	}
}
