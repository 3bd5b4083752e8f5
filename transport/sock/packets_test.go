package sock

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel did not write is not read.
func TestControlMessages(t *testing.T) {
	info := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: 7, Addr: [4]byte{224, 0, 0, 254}})
	for n := range info {
		var d Datagram
		d.read(info[:n])
		if n < len(info)-4 && d.Index != 0 {
			t.Errorf("%d of %d bytes: interface %d", n, len(info), d.Index)
		}
	}
	var d Datagram
	d.read(info)
	if d.Index != 7 || d.To != netip.AddrFrom4([4]byte{224, 0, 0, 254}) {
		t.Errorf("interface %d, to %v", d.Index, d.To)
	}
}
