package conformance

import (
	"errors"
	"syscall"
)

// dataDirect is the PCIe function by which the first device reaches GPU memory; the second has none.
const dataDirect = "/devices/pci0000:00/0000:00:02.0/0000:02:00.0"

// dataDirectRows are about such functions.
var dataDirectRows = []row{
	on("a function for GPU memory", func(a, b *end) {
		for e, want := range map[*end]string{a: dataDirect, b: ""} {
			if got, err := e.ctx.DataDirectPath(); err != nil || got != want {
				e.w.Errorf("%q, %v, want %q", got, err, want)
			}
		}
		for e, want := range map[*end]error{a: syscall.EBADF, b: syscall.EINVAL} {
			if _, err := e.pd.RegDataDirectMR(0, 4096, 0x7000000, -1, all); !errors.Is(err, want) {
				e.w.Errorf("a DMA-BUF without a descriptor: %v, want %v", err, want)
			}
		}
	}, wish{fresh: true}),
}
