package sock

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/limit"
)

// PortRange is the ports that a process binds its TCP and UDP sockets to, so that a firewall can let just these pass. The
// zero value leaves the choice to the kernel.
type PortRange struct{ First, Last uint16 }

// firstPort is the lowest port that needs no privilege.
const firstPort = 1024

// ParsePortRange reads first-last, as NCCL_MESH_PORTS has it.
func ParsePortRange(s string) (PortRange, error) {
	var r PortRange
	first, last, ok := strings.Cut(s, "-")
	for _, end := range []struct {
		text string
		port *uint16
	}{{first, &r.First}, {last, &r.Last}} {
		n, err := strconv.ParseUint(strings.TrimSpace(end.text), 10, 16)
		ok = ok && err == nil && n >= firstPort
		*end.port = uint16(n)
	}
	if !ok || r.First > r.Last {
		return PortRange{}, fmt.Errorf("want FIRST-LAST, two ports from %d to 65535 in rising order, as in 50000-50999", firstPort)
	}
	return r, nil
}

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// from returns every port once, beginning with the one at an offset. Of the zero range that is port 0, for which the
// kernel chooses.
func (r PortRange) from(offset uint32) iter.Seq[uint16] {
	size := uint32(r.Last-r.First) + 1
	return func(yield func(uint16) bool) {
		for i := range size {
			if !yield(r.First + uint16((offset+i)%size)) {
				return
			}
		}
	}
}

// turn makes each socket that dials begin its search behind the one before it: a port that has just been given back may
// still be open in the eyes of the other end.
var turn atomic.Uint32

// bind calls bind with one port of the range after the other, from the one at an offset, until it has found one that is
// free.
func (r PortRange) bind(offset uint32, bind func(port uint16) error) error {
	var err error
	for port := range r.from(offset) {
		if err = bind(port); !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return r.usedUp(err)
}

// usedUp says that no port of the range is free, given what was said of the last.
func (r PortRange) usedUp(err error) error {
	if r == (PortRange{}) {
		return err
	}
	return limit.Out(err, fmt.Sprintf(": all ports of NCCL_MESH_PORTS=%v are in use on this machine; give it more ports, or see what holds them (ss -tuanp)", r))
}
