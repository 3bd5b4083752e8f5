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
	pollBytes   = 512 << 10          // most bytes that one poll moves over a socket: half as many cost a fifth of the speed, twice as many a tenth
	sendBatch   = 8                  // parts that one system call may send
	returnQueue = window * maxReturn // more than the grants that can be outstanding
	returnInput = 1024               // bytes of grants and acknowledgements read at once
	readAhead   = 256                // most bytes read with a header: copying them costs less than a system call
	ackEvery    = 8                  // parts that arrive before the sender is told, at the latest
	checkEvery  = time.Second        // between two looks at a silent socket
	checkMisses = 64                 // fruitless polls between two looks at the clock
	minLost     = 2                  // retransmissions in a row before a peer may count as lost
)

// socket carries a lane over TCP. All its work is done inside calls of the
// connection's owner, with system calls that do not block, from and into the
// user's buffers: an idle socket costs nothing, and a stopped one touches no
// buffer.
//
// Nothing is copied but what comes in with a header, less than readAhead bytes,
// and, where the lane is checked, parts of up to pieceSize: not a byte of those
// reaches the user before its code has been found right.
//
// A part is accepted when the kernel has its last byte, and delivered when the
// receiver says that it has arrived. Grants and acknowledgements come over the
// socket in the other direction; grants are put into the ring where a device would
// have written them.
type socket struct {
	*lane
	fd       int // -1 until connected, and once closed
	addr     netip.Addr
	gidIndex int
	token    uint64 // this side's
	tcpPort  uint16 // where this side listens, if it receives
	check    bool   // this side wants the lane to be checked
	call     *dataport.Call
	openErr  error // why this half cannot work
	closed   bool

	mem            *socketMemory
	sealer, opener coder // of what goes out, and of what comes in
	outgoing
	incoming
	returns
	have int // bytes in mem.in, read and not taken

	misses  int
	checked time.Time // when the kernel was last asked about the peer
	suspect time.Time // since when it has acknowledged nothing; zero when it has
}

// socketMemory is what system calls are given addresses of, beside user buffers.
// Where a half or a lane has no use for a part of it, that costs addresses only.
type socketMemory struct {
	msg   msghdr
	iov   [4 * sendBatch]iovec
	codes [pieceCodes][codeSize]byte           // of pieces to send, by number
	heads [window][frameHeader + codeSize]byte // of the parts to send
	in    [returnInput]byte                    // what is read ahead at the receiver, returns at the sender
	out   [returnQueue]byte                    // returns to send
	stage [pieceSize]byte                      // a part that waits for its code
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
	k.check = wantsCheck(c.t.opts.TCPCheck, k.addr, addrOf(l.remote.GID), &l.port.now().Port)
	if !c.sending {
		k.tcpPort, k.openErr = c.t.data.Listen(k.addr, l.port.Netdev)
	}
	return k, nil
}

func (k *socket) offer(h *handshake.Lane) {
	h.Kind = handshake.LaneTCP
	h.GID, h.GIDIndex = k.addr.WithZone("").As16(), uint16(k.gidIndex)
	h.Token, h.TCPPort, h.Check = k.token, k.tcpPort, k.check
}

// connect dials the receiver's half, or makes it known that the sender's will.
func (k *socket) connect(ctx context.Context, remote handshake.Lane, _ int) error {
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
	}
	if k.check || remote.Check {
		if err := k.useCodes(end); err != nil {
			return err
		}
	}
	if !c.sending {
		var err error
		k.call, err = c.t.data.Expect(end, k.attach)
		return err
	}
	to := addrOf(remote.GID)
	if to.Is6() && to.IsLinkLocalUnicast() {
		to = to.WithZone(k.port.Netdev)
	}
	end.Reached = k.reached.Store
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
	if k.sealer.on() {
		return fmt.Sprintf("tcp %v -> %v checked", own, peer)
	}
	return fmt.Sprintf("tcp %v -> %v", own, peer)
}

// The exchange that connected the socket has proved the path both ways.
func (k *socket) postProof() error { return nil }
func (k *socket) proved() (sent, came bool, err error) {
	return k.fd >= 0, k.fd >= 0, nil
}

func (k *socket) room(int) (bool, error) { return k.accepted+k.queued < window, nil }
func (k *socket) grantable() bool        { return true }
func (k *socket) prepare() error         { return nil }

// pollSockets moves what can be moved over every socket, at most pollBytes each
// way, and acknowledges what has arrived.
//
// Preconditions: c.mu is held.
func (c *conn) pollSockets(receiving bool) {
	for _, k := range c.sockets {
		if err := k.poll(receiving); err != nil {
			k.broken(err)
		}
	}
	if c.sending {
		return
	}
	idle := !c.half.waiting()
	for _, k := range c.sockets {
		if err := k.acknowledge(idle); err != nil {
			k.broken(err)
		}
	}
}

func (k *socket) poll(receiving bool) error {
	if !k.up {
		return nil
	}
	if k.conn.sending {
		if k.queued > 0 {
			if err := k.flushParts(); err != nil {
				return err
			}
		}
		if k.queued+k.accepted > 0 {
			return k.readReturns()
		}
		return nil
	}
	if k.outHead < k.outTail {
		if err := k.flushReturns(); err != nil {
			return err
		}
	}
	if receiving {
		return k.readParts()
	}
	return nil
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
	k.accepted, k.queued = 0, 0
	k.incoming = incoming{}
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
