package sock

import (
	"context"
	"io"
	"net/netip"
	"time"
)

// A Network opens sockets. Its methods may be called from any goroutine.
type Network interface {
	// Dial opens a stream. When the context ends before it stands, the error is the context's cause.
	Dial(ctx context.Context, from From, to netip.AddrPort) (Conn, error)
	// Listen opens a listener at an address, on one interface when netdev names one. The zero address is all, of both
	// families where the network has both, and port 0 the first of the range that is free.
	Listen(at netip.AddrPort, netdev string, ports PortRange) (Listener, error)
	// Hear opens a socket that receives the datagrams that are sent to a multicast group and port on an interface. Several
	// may be open.
	Hear(on Interface, group netip.AddrPort) (Packets, error)
	// Ask opens a socket to send datagrams from on an interface, and to receive the answers: at an IPv4 address of the
	// interface, or with IPv6 at all of its addresses.
	Ask(on Interface, source netip.Addr, ports PortRange) (Packets, error)
	// Interfaces returns the interfaces that there are.
	Interfaces() ([]Interface, error)
	// Prefixes returns the addresses of an interface, each with the length of its subnet; none when the interface is gone.
	Prefixes(index int) []netip.Prefix
}

// On returns the network to use where n was configured: the kernel's where n is nil.
func On(n Network) Network {
	if n == nil {
		return Kernel{}
	}
	return n
}

// From is where a stream is dialled from.
type From struct {
	Addr   netip.Addr // own address, a link-local one with its zone; the zero value is the network's choice
	Netdev string     // own interface; "" is the network's choice
	OnLink bool       // what is sent must not need a router: it goes out with the highest hop limit
	Ports  PortRange  // own ports
}

// Interface is a network interface.
type Interface struct {
	Name    string
	Index   int
	Running bool // it is up and has a carrier
}

// InterfaceOf returns the name of the interface that has an address of this machine, "" where none has.
func InterfaceOf(n Network, a netip.Addr) string {
	interfaces, err := n.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range interfaces {
		for _, p := range n.Prefixes(i.Index) {
			if p.Addr() == a {
				return i.Name
			}
		}
	}
	return ""
}

// A Listener accepts streams.
type Listener interface {
	// Addr is where it listens.
	Addr() netip.AddrPort
	// Accept waits for the next stream. After Close the error is net.ErrClosed.
	Accept() (Conn, error)
	// Close ends the listener, and an Accept that waits.
	Close() error
}

// A Conn is a stream. Read, Write and Pump wait; each may be called from one goroutine at a time, beside the others. Close
// and the deadlines end those that wait. Errors wrap the errno; after Close the error is net.ErrClosed, and after a deadline
// os.ErrDeadlineExceeded.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error     // of reads and writes; the zero time is none
	SetReadDeadline(t time.Time) error // of reads

	// Local and Remote are the two ends; an address of IPv4 is never written as one of IPv6, and a link-local one has its zone.
	Local() netip.AddrPort
	Remote() netip.AddrPort

	// CloseWrite tells the other end that nothing more is sent.
	CloseWrite() error
	// Reset closes the stream such that the other end sees it break.
	Reset() error

	// SetPatience says how long the network goes on with an end that does not answer.
	SetPatience(Patience) error
	// Tie makes the stream take only what comes from the link of an interface: by the interface, and through no router.
	Tie(netdev string) error
	// Info says how far the other end has acknowledged.
	Info() (Info, error)

	// Pump sends what it receives from the stream to another one until the stream ends, and tells moved how many bytes after
	// each piece. Both must be of one network.
	Pump(to Conn, moved func(n int)) error

	// Stream returns the stream without waiting calls. It has the patience of the Conn, which is still to be closed, and on
	// which nothing may be read any more.
	Stream() (*Stream, error)
}

// Patience is how long a network goes on with an end that does not answer. Durations are rounded up: to seconds, Silence to
// milliseconds.
type Patience struct {
	Idle     time.Duration // before an idle end is asked for a sign of life,
	Interval time.Duration // and between two questions
	Count    int           // of questions in vain, after which the stream has broken
	Silence  time.Duration // for which sent bytes may stay unacknowledged; 0: as long as the network likes
}

// Packets sends and receives the datagrams of one interface.
type Packets interface {
	// Send sends a datagram; over IPv4 from a source. It does not wait.
	Send(b []byte, to netip.AddrPort, source netip.Addr) error
	// Receive waits for the next datagram. After Close the error is net.ErrClosed.
	Receive(d *Datagram) error
	// Local is the address and port that the socket is bound to.
	Local() netip.AddrPort
	Close() error
}

// Datagram is one that was received, and how it came.
type Datagram struct {
	Bytes []byte // until the next Receive
	Cut   bool   // there were more bytes than the room has
	From  netip.AddrPort
	To    netip.Addr
	Index int // of the interface
	Hops  int // its hop limit at the end

	Room    []byte // where the bytes go; the caller's
	control [256]byte
}
