package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

func init() { helpers["record"] = record }

// record says that it records, listens to the node's interfaces until its input ends, and then writes what was said in each TCP connection by the
// side that opened it: the other's address and the bytes, a line each.
func record() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		return fmt.Errorf("receive buffer: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000}); err != nil {
		return fmt.Errorf("receive time-out: %w", err)
	}
	fmt.Println("recording")
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.Sleep(50 * time.Millisecond)
		close(done)
	}()
	flows := map[flow]*stream{}
	buf := make([]byte, 1<<17)
	for {
		select {
		case <-done:
			for _, f := range slices.Collect(maps.Keys(flows)) {
				if s := flows[f]; s.opened && len(s.bytes) > 0 {
					fmt.Printf("%v %s\n", f.to, hex.EncodeToString(s.bytes))
				}
			}
			return nil
		default:
		}
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		note(flows, buf[:n])
	}
}

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// flow is one direction of a connection, and stream what was said.
type flow struct{ from, to netip.AddrPort }

type stream struct {
	opened bool
	next   uint32 // sequence number
	bytes  []byte
}

// note takes an IPv4 packet. Nothing is lost or reordered between two namespaces.
func note(flows map[flow]*stream, p []byte) {
	if len(p) < 20 || p[0]>>4 != 4 || p[9] != unix.IPPROTO_TCP {
		return
	}
	head, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if total == 0 || total > len(p) { // offloaded
		total = len(p)
	}
	if total < head+20 {
		return
	}
	t := p[head:total]
	f := flow{
		netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[12:16])), binary.BigEndian.Uint16(t)),
		netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[16:20])), binary.BigEndian.Uint16(t[2:])),
	}
	seq, offset, flags := binary.BigEndian.Uint32(t[4:]), int(t[12]>>4)*4, t[13]
	const syn, ack = 2, 16
	if flags&syn != 0 {
		flows[f] = &stream{opened: flags&ack == 0, next: seq + 1}
		return
	}
	s := flows[f]
	if s == nil || offset > len(t) || seq != s.next {
		return
	}
	s.bytes = append(s.bytes, t[offset:]...)
	s.next += uint32(len(t) - offset)
}
