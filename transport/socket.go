package transport

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/topology"
)

const (
	pollBytes   = 512 << 10         // most bytes that one poll moves over a socket: half as many cost a fifth of the speed, twice as many a tenth
	sendBatch   = 8                 // parts that one system call may send
	grantQueue  = window * maxGrant // more than receives can be outstanding
	grantInput  = 1024              // bytes of grants read at once
	readAhead   = 256               // most bytes read with a header: copying them costs less than a system call
	checkEvery  = time.Second       // between two looks at a silent socket
	checkMisses = 64                // fruitless polls between two looks at the clock
	minLost     = 2                 // retransmissions in a row before a peer may count as lost
)

// socket carries a lane over TCP. All its work is done inside calls of the
// connection's owner, with system calls that do not block, from and into the
// user's buffers: an idle socket costs nothing, and a stopped one touches no
// buffer.
//
// Nothing is copied but what comes in with a header, less than readAhead bytes.
//
// A part is delivered when the kernel has accepted its last byte. Grants come
// over the socket in the other direction and are put into the ring where a
// device would have written them.
type socket struct {
	*lane
	fd       int // -1 until connected, and once closed
	addr     netip.Addr
	gidIndex int
	token    uint64 // this side's
	tcpPort  uint16 // where this side listens, if it receives
	call     *dataport.Call
	openErr  error // why this half cannot work
	closed   bool

	mem   *socketMemory
	parts [window]outgoing // to send, a ring
	first int              // of the ring
	count int
	sent  int // bytes of the first part's frame that the kernel has

	outHead, outTail int // of mem.out: grants that the kernel does not have yet

	have int       // bytes in mem.in, read and not taken
	in   dataFrame // the part that is arriving
	at   uintptr   // where its next byte goes
	left int       // bytes of it to come

	misses  int
	checked time.Time // when the kernel was last asked about the peer
	suspect time.Time // since when it has acknowledged nothing; zero when it has
}

// outgoing is a part that waits for the kernel.
type outgoing struct {
	request int
	local   uintptr
	size    int
}

// socketMemory is what system calls are given addresses of, beside user buffers.
type socketMemory struct {
	msg   msghdr
	iov   [2 * sendBatch]iovec
	in    [grantInput]byte         // what is read ahead at the receiver, grants at the sender
	heads [window][dataHeader]byte // of the parts to send
	out   [grantQueue]byte         // grants to send
}

// newSocket makes the socket that carries l, to be connected. What is wrong with
// the local address is this lane's failure alone, and comes out when it connects.
func newSocket(l *lane, gid topology.GID) (*socket, error) {
	c := l.conn
	k := &socket{lane: l, fd: -1, addr: gid.Addr.Unmap(), gidIndex: gid.Index, mem: &ibv.Carve[socketMemory](c.mem, 1)[0]}
	if k.addr.Is6() && k.addr.IsLinkLocalUnicast() {
		k.addr = k.addr.WithZone(l.port.Netdev)
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	k.token = binary.NativeEndian.Uint64(b[:])
	if !c.sending {
		k.tcpPort, k.openErr = c.t.data.Listen(k.addr, l.port.Netdev)
	}
	return k, nil
}

func (k *socket) offer(h *handshake.Lane) {
	h.Kind = handshake.LaneTCP
	h.GID, h.GIDIndex = k.addr.WithZone("").As16(), uint16(k.gidIndex)
	h.Token, h.TCPPort = k.token, k.tcpPort
}

// connect dials the receiver's half, or makes it known that the sender's will.
func (k *socket) connect(remote handshake.Lane, _ int) error {
	if k.openErr != nil {
		return k.openErr
	}
	c := k.conn
	end := dataport.End{
		Name:   handshake.LaneName{Session: c.s.ID(), Conn: c.id, Lane: k.index},
		Key:    c.s.LaneKey(),
		Tokens: handshake.LaneTokens{Dialler: k.token, Listener: remote.Token},
		Addr:   k.addr, Device: k.port.Netdev,
	}
	if !c.sending {
		end.Tokens = handshake.LaneTokens{Dialler: remote.Token, Listener: k.token}
		var err error
		k.call, err = c.t.data.Expect(end, k.attach)
		return err
	}
	to := addrOf(remote.GID)
	if to.Is6() && to.IsLinkLocalUnicast() {
		to = to.WithZone(k.port.Netdev)
	}
	limit := c.t.opts.scaled(c.t.opts.ProofWait)
	ctx, cancel := context.WithTimeoutCause(c.t.ctx, limit, fmt.Errorf("within %v", limit))
	defer cancel()
	fd, err := c.t.data.Dial(ctx, end, netip.AddrPortFrom(to, remote.TCPPort))
	if err != nil {
		return err
	}
	k.attach(fd)
	return nil
}

// attach takes over a connected descriptor.
func (k *socket) attach(fd int) {
	k.conn.mu.Lock()
	defer k.conn.mu.Unlock()
	if k.closed || k.fd >= 0 {
		_ = dataport.CloseFD(fd) // nobody waits for it any more
		return
	}
	k.fd = fd
}

func (k *socket) terms() string {
	own, peer := k.addr.WithZone(""), addrOf(k.remote.GID)
	if !k.conn.sending {
		own, peer = peer, own
	}
	return fmt.Sprintf("tcp %v -> %v", own, peer)
}

// The exchange that connected the socket has proved the path both ways.
func (k *socket) postProof() error       { return nil }
func (k *socket) proved() (bool, error)  { return k.fd >= 0, nil }
func (k *socket) room(int) (bool, error) { return k.count < window, nil }
func (k *socket) grantable() bool        { return true }
func (k *socket) prepare() error         { return nil }

// poll moves what can be moved, at most pollBytes each way.
//
// Preconditions: conn.mu is held.
func (k *socket) poll(receiving bool) {
	if !k.up {
		return
	}
	var err error
	switch {
	case k.conn.sending && k.count > 0:
		err = k.flushParts()
	case !k.conn.sending:
		if k.outHead < k.outTail {
			err = k.flushGrants()
		}
		if err == nil && receiving {
			err = k.readParts()
		}
	}
	if err != nil {
		k.broken(err)
	}
}

// broken takes the lane out of service.
func (k *socket) broken(err error) {
	k.up = false
	k.conn.half.failed(k.lane, -1, err)
}

// wrap makes an error of a system call one that names both ends. buffer is the
// user's memory that the call was given.
func (k *socket) wrap(call string, errno unix.Errno, buffer uintptr) error {
	switch errno {
	case unix.EFAULT:
		return fmt.Errorf("%w: %v: %v: %s: the memory at %#x is registered and not mapped", ErrUsage, k.conn, k.lane, call, buffer)
	case unix.EBADF, unix.ENOTSOCK, unix.EINVAL, unix.ENOTCONN:
		return fmt.Errorf("%w: %v: %v: %s: %w", errDevice, k.conn, k.lane, call, errno)
	case unix.ECONNRESET, unix.EPIPE:
		return fmt.Errorf("%w: %v: %v: %s: %w; %s has closed the lane or ended, its log may say why", ErrLane, k.conn, k.lane, call, errno, k.conn.s.Name())
	case unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN:
		return fmt.Errorf("%w: %v: %v: %s: %w; check the cable, both ports and the peer", ErrUnreachable, k.conn, k.lane, call, errno)
	}
	return fmt.Errorf("%w: %v: %v: %s: %w", ErrLane, k.conn, k.lane, call, errno)
}

// errEnd is what a socket says when the peer has closed it.
var errEnd = errors.New("the peer closed the lane")

func (k *socket) wrapEnd() error {
	return fmt.Errorf("%w: %v: %v: %w", ErrPeerClosed, k.conn, k.lane, errEnd)
}

// again reports whether a system call did nothing for a reason that passes.
func again(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ENOBUFS || errno == unix.ENOMEM
}

// moved notes that the socket lives.
func (k *socket) moved() { k.misses, k.suspect = 0, time.Time{} }

// missed notes a poll in vain. Now and then it asks the kernel whether the peer
// acknowledges: one that does may be as slow as it likes.
func (k *socket) missed() error {
	if k.misses++; k.misses%checkMisses != 0 {
		return nil
	}
	now := time.Now()
	if now.Sub(k.checked) < checkEvery {
		return nil
	}
	k.checked = now
	info, err := unix.GetsockoptTCPInfo(k.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return k.wrap("getsockopt(TCP_INFO)", err.(unix.Errno), 0)
	}
	silent := time.Duration(info.Last_ack_recv) * time.Millisecond
	switch {
	case info.Unacked == 0:
		k.suspect = time.Time{}
	case k.suspect.IsZero() || silent < now.Sub(k.suspect):
		k.suspect = now
	case info.Retransmits >= minLost && now.Sub(k.suspect) >= k.conn.t.opts.scaled(k.conn.t.opts.LaneWait):
		return fmt.Errorf("%w: %v: %v: nothing was acknowledged for %v; check the cable, both ports and the peer",
			ErrUnreachable, k.conn, k.lane, now.Sub(k.suspect).Round(time.Second))
	}
	return nil
}

// stop forgets what was to be sent and received: nothing happens between calls.
func (k *socket) stop() error {
	k.count, k.left, k.at = 0, 0, 0
	k.outHead, k.outTail = 0, 0
	return nil
}

func (k *socket) drained() bool { return true }

// close gives the descriptor back; what the kernel has accepted still goes out.
func (k *socket) close() error {
	if k.call != nil {
		k.conn.t.data.Cancel(k.call)
		k.call = nil
	}
	k.closed = true
	if k.fd < 0 {
		return nil
	}
	fd := k.fd
	k.fd = -1
	return dataport.CloseFD(fd)
}
