package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
)

const (
	pollBytes     = 512 << 10                     // most bytes that one poll moves over a socket: half as many cost a fifth of the speed, twice as many a tenth
	sendBatch     = 8                             // parts that one system call may send
	reverseQueue  = lane.Window * maxReverseFrame // more than the grants that can be outstanding
	reverseInput  = 1024                          // bytes of grants and acknowledgements read at once
	shortPart     = 1024                          // most bytes of a part that is copied behind its header, as two stretches of memory cost the kernel more
	readAhead     = 256                           // most bytes read with a header: copying them costs less than a system call
	ackEvery      = 8                             // parts that arrive before the sender is told, at the latest
	checkEvery    = time.Second                   // between two looks at a silent socket
	checkPolls    = 64                            // fruitless polls between two looks at the clock
	minUnanswered = 2                             // retransmissions, or probes, in a row before a peer may count as lost
)

// socket carries a lane over TCP. All its work is done inside calls of the
// connection's owner, with system calls that do not block, from and into the
// user's buffers: an idle socket costs nothing, and a stopped one touches no
// buffer.
//
// Nothing is copied but parts of up to shortPart that go out alone, eager messages, what
// comes in with a header, less than readAhead bytes, and, where the lane is checked, parts
// of up to pieceSize: not a byte of those reaches the user before its code has been found
// right.
//
// A part is accepted when the kernel has its last byte, and delivered when the
// receiver says that it has arrived. Grants and acknowledgements come over the
// socket in the other direction; grants are put into the ring where a device would
// have written them.
type socket struct {
	lane     *lane.Lane
	domain   *domain
	port     *Port
	stream   *sock.Stream // sock.None until connected, and once closed; guarded by streamMu
	streamMu sync.Mutex
	addr     netip.Addr
	token    uint64 // this side's
	tcpPort  uint16 // where this side listens, if it receives
	check    bool   // this side wants the lane to be checked
	call     *dataport.Call
	openErr  error           // why this half cannot work
	circuit  *relayedCircuit // guarded by streamMu
	closed   bool

	room           *ibv.Memory
	mem            *socketMemory // in room
	sealer, opener coder         // of what goes out, and of what comes in
	outgoing
	incoming
	reverseStream
	grant [lane.MaxSubs]lane.Grant // that is being handed on
	have  int                      // bytes in mem.in, read and not taken

	idlePolls int
	checked   time.Time    // when the kernel was last asked about the peer
	silence   sock.Silence // of the peer
}

var _ lane.Carrier = (*socket)(nil)

// socketMemory is what system calls are given addresses of, beside user buffers.
// Where a half or a lane has no use for a part of it, that costs addresses only.
type socketMemory struct {
	msg   sock.Message
	iov   [4 * sendBatch]sock.Vector
	codes [pieceCodes][codeSize]byte                // of pieces to send, by number
	heads [lane.Window][frameHeader + codeSize]byte // of the parts to send
	short [shortFrame]byte                          // a part that goes out behind its header
	in    [reverseInput]byte                        // what is read ahead at the receiver, returns at the sender
	out   [reverseQueue]byte                        // returns to send
	stage [pieceSize]byte                           // a part that waits for its code, or an eager message
}

// newSocket makes the socket that carries l, to be connected. What is wrong with
// the local address is this lane's failure alone, and comes out when it connects.
func newSocket(d *domain, l *lane.Lane) (_ *socket, err error) {
	p := d.port
	k := &socket{lane: l, domain: d, port: p, stream: sock.None, addr: topology.OnLink(l.From.Addr, p.Now().Netdev)}
	if k.room, err = ibv.Alloc(socketMemorySize); err != nil {
		return nil, err
	}
	k.mem = &ibv.Carve[socketMemory](k.room, 1)[0]
	k.token = p.opts.Random.For(l.Name()).Uint64("token")
	k.check = wantsCheck(p.opts.Check, k.addr, l.Remote.Addr.Unmap(), p.Now())
	if l.Route != nil && p.opts.Check == CheckAuto { // whoever relays could alter it
		k.check = true
	}
	if !l.Conn.Sending {
		k.tcpPort, k.openErr = p.opts.Data.Listen(k.addr, p.Now().Netdev)
	}
	return k, nil
}

func (k *socket) Offer(h *handshake.Lane) {
	h.Addr, h.GIDIndex = k.lane.From.Addr.WithZone(""), uint16(k.lane.From.Index)
	h.Token, h.TCPPort, h.Check = k.token, k.tcpPort, k.check
}

// Connect dials the receiver's half, or makes it known that the sender's will.
func (k *socket) Connect(ctx context.Context, remote handshake.Lane, _ int) error {
	if k.openErr != nil {
		return k.openErr
	}
	c, netdev := k.lane.Conn, k.port.Now().Netdev
	end := dataport.End{
		Name:   handshake.LaneName{Session: c.Session.ID(), Conn: c.ID, Lane: k.lane.Index},
		Key:    c.Session.LaneKey(),
		Tokens: handshake.LaneTokens{Dialler: k.token, Listener: remote.Token},
		Addr:   k.addr, Netdev: netdev,
	}
	if !c.Sending {
		end.Tokens = handshake.LaneTokens{Dialler: remote.Token, Listener: k.token}
	}
	if k.check || remote.Check {
		if err := k.useCodes(end); err != nil {
			return err
		}
	}
	if !c.Sending {
		var err error
		if k.call, err = k.port.opts.Data.Expect(end, k.attach); err != nil || k.lane.Route == nil {
			return err
		}
		return k.expectCircuit()
	}
	var stream *sock.Stream
	var err error
	if k.lane.Route != nil {
		stream, err = k.dialThrough(ctx, end, remote)
	} else {
		end.Reached = k.lane.Reached.Store
		stream, err = k.port.opts.Data.Dial(ctx, end, netip.AddrPortFrom(topology.OnLink(remote.Addr, netdev), remote.TCPPort))
	}
	if err != nil {
		return err
	}
	k.attach(stream)
	return nil
}

// LocalError is what this node ran out of while the peer's call was waited for.
func (k *socket) LocalError() error {
	if k.call == nil {
		return nil
	}
	return k.port.opts.Data.Why(k.call)
}

// attach takes over a connected stream. It may be called from any goroutine.
func (k *socket) attach(s *sock.Stream) {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	if k.closed || k.stream != sock.None {
		_ = s.Close() // nobody waits for it any more
		return
	}
	k.stream = s
}

// attached reports whether there is a stream. Once there is, it stays until Close,
// which like all else but attach is called with the connection's mutex held.
func (k *socket) attached() bool {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	return k.stream != sock.None
}

// Terms says which addresses the socket joins, and through whom.
func (k *socket) Terms() string {
	own, peer := k.addr.WithZone(""), k.lane.Remote.Addr.Unmap()
	if !k.lane.Conn.Sending {
		own, peer = peer, own
	}
	checked := ""
	if k.sealer.on() {
		checked = " checked"
	}
	return fmt.Sprintf("tcp %v -> %v%s%v", own, peer, checked, k.lane.Route)
}

// Number is that of the stream, 0 until there is one.
func (k *socket) Number() int {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	return max(k.stream.Number(), 0)
}

// Remark has nothing to say.
func (k *socket) Remark() string { return "" }

// PostProbe does nothing: the exchange that connected the socket has proved the path
// both ways.
func (k *socket) PostProbe() error { return nil }

func (k *socket) Probed() (sent, came bool, err error) {
	there := k.attached()
	return there, there, nil
}

func (k *socket) poll(receiving bool) error {
	if !k.lane.InService() {
		return nil
	}
	if k.lane.Conn.Sending {
		if k.queued > 0 {
			if err := k.flushParts(); err != nil {
				return err
			}
		}
		if k.queued+k.accepted > 0 {
			return k.readReverse()
		}
		return nil
	}
	if k.outHead < k.outTail {
		if err := k.flushReverse(); err != nil {
			return err
		}
	}
	if receiving || k.refused != nil {
		return k.readParts()
	}
	return nil
}

// wrap makes an error of a system call one that names both ends. buffer is the
// user's memory that the call was given.
func (k *socket) wrap(call string, errno unix.Errno, buffer uintptr) error {
	switch errno {
	case unix.EFAULT:
		return fmt.Errorf("%w: %v: %v: %s: the memory at %#x is registered but not mapped", fault.ErrUsage, k.lane.Conn, k.lane, call, buffer)
	case unix.EBADF, unix.ENOTSOCK, unix.EINVAL, unix.ENOTCONN:
		return fmt.Errorf("%w: %v: %v: %s: %w", fault.ErrDevice, k.lane.Conn, k.lane, call, errno)
	case unix.ECONNRESET, unix.EPIPE:
		return fmt.Errorf("%w: %v: %v%v: %s: %w; %s has closed the lane or ended, its log may say why", fault.ErrLane, k.lane.Conn, k.lane, k.lane.Route, call, errno, k.lane.Conn.Session.Name())
	case unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN:
		return fmt.Errorf("%w: %v: %v: %s: %w; check the cable, both ports and the peer", fault.ErrUnreachable, k.lane.Conn, k.lane, call, errno)
	}
	return fmt.Errorf("%w: %v: %v: %s: %w", fault.ErrLane, k.lane.Conn, k.lane, call, errno)
}

// errEnd is what a socket says when the peer has closed it.
var errClosed = errors.New("the peer closed the lane")

func (k *socket) wrapClosed() error {
	if k.lane.Route != nil {
		return fmt.Errorf("%w: %v: %s: %w, or a relay ended", fault.ErrPeerClosed, k.lane.Conn, k.lane.Path(), errClosed)
	}
	return fmt.Errorf("%w: %v: %v: %w", fault.ErrPeerClosed, k.lane.Conn, k.lane, errClosed)
}

// again reports whether a system call did nothing for a reason that passes.
func isTransient(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ENOBUFS || errno == unix.ENOMEM
}

// moved notes that the socket lives.
func (k *socket) noteProgress() { k.idlePolls, k.silence = 0, sock.Silence{} }

// missed notes a poll in vain. Now and then it asks the kernel whether the peer
// acknowledges: one that does may be as slow as it likes. Where there is no route any
// more the kernel sends nothing, and only probes.
func (k *socket) noteIdlePoll() error {
	if k.idlePolls++; k.idlePolls%checkPolls != 0 {
		return nil
	}
	now := time.Now()
	if now.Sub(k.checked) < checkEvery {
		return nil
	}
	k.checked = now
	info, err := k.stream.Info()
	if err != nil {
		return fmt.Errorf("%w: %v: %v: %w", fault.ErrDevice, k.lane.Conn, k.lane, err)
	}
	if d := k.silence.Look(info, now, minUnanswered); d > 0 && d >= k.port.opts.Silence {
		return fmt.Errorf("%w: %v: %s: nothing was acknowledged for %v; check the cable, both ports and the peer",
			fault.ErrUnreachable, k.lane.Conn, k.lane.Path(), d.Round(time.Second))
	}
	return nil
}

// Stalled reports whether the kernel sends again and hears nothing, as of a peer whose
// process merely does not read it would.
func (k *socket) Stalled() bool {
	info, err := k.stream.Info()
	return err == nil && info.Unheard(minUnanswered)
}

// Stop forgets what was to be sent and received: nothing happens between calls.
func (k *socket) Stop() error {
	k.accepted, k.queued, k.eagerQueued = 0, 0, 0
	if k.part && k.in.kind() == kindPart {
		k.lane.Conn.Sink.Dropped(k.lane, k.in.imm)
	}
	k.incoming = incoming{}
	k.outHead, k.outTail = 0, 0
	return nil
}

// Drained is true: nothing happens between calls.
func (k *socket) Drained() bool { return true }

// Unsent is what the kernel has accepted and the peer's kernel has not acknowledged.
func (k *socket) Unsent() int {
	if !k.lane.InService() {
		return 0
	}
	return k.stream.Unsent()
}

// Close gives the stream back; what the kernel has accepted still goes out.
func (k *socket) Close() error {
	if k.call != nil {
		k.port.opts.Data.Cancel(k.call)
		k.call = nil
		if k.lane.Route != nil && k.port.opts.Circuits != nil {
			k.port.opts.Circuits.Cancel(k.token)
		}
	}
	k.streamMu.Lock()
	stream, through := k.stream, k.circuit
	k.stream, k.closed = sock.None, true
	k.streamMu.Unlock()
	var errs []error
	errs = append(errs, stream.Close())
	through.drop("the lane has been closed")
	if k.room != nil {
		errs = append(errs, k.room.Free())
		k.room, k.mem = nil, nil
	}
	k.domain.sockets = slices.DeleteFunc(k.domain.sockets, func(other *socket) bool { return other == k })
	return errors.Join(errs...)
}
