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
	pollBytes     = 512 << 10                     // most bytes that one poll moves over a socket: with half as many it is a fifth slower, with twice as many a tenth
	sendBatch     = 8                             // parts that one system call sends, at most
	reverseQueue  = lane.Window * maxReverseFrame // room for more than the grants that can be outstanding
	reverseInput  = 1024                          // bytes of the reverse stream read at once
	shortPart     = 1024                          // most bytes of a part that is copied behind its header, because two vectors cost the kernel more time
	readAhead     = 256                           // most bytes read with a header, because copying them costs less than a system call
	ackEvery      = 8                             // an acknowledgement is sent after this many parts at the latest
	checkEvery    = time.Second                   // least time between two checks of a silent socket
	checkPolls    = 64                            // idle polls between two checks of the clock
	minUnanswered = 2                             // consecutive retransmissions or probes without an answer after which a peer may be lost
)

// socket carries a lane over TCP. It works only inside calls of the
// connection's owner, with system calls that do not block and that read and write the
// user's buffers directly. An idle socket costs nothing, and a stopped one touches no
// buffer.
//
// The socket copies only parts of up to shortPart bytes that are sent alone, eager messages, the bytes
// that are read with a header (at most readAhead), and, on an authenticated lane, parts
// of up to pieceSize bytes, because their bytes must not reach the user's buffer before their code
// is verified.
//
// A part is accepted when the kernel has its last byte, and delivered when the
// receiver has acknowledged it. Grants and acknowledgements arrive over the
// socket in the reverse direction; grants are stored in the ring where a device would
// have written them.
type socket struct {
	lane     *lane.Lane
	domain   *domain
	port     *Port
	stream   *sock.Stream // sock.None before it is connected and after it is closed; guarded by streamMu
	streamMu sync.Mutex
	addr     netip.Addr
	token    uint64 // this side's token
	tcpPort  uint16 // port on which the receiver listens
	check    bool   // this side requires authentication
	call     *dataport.Call
	openErr  error           // why this half cannot be connected
	circuit  *relayedCircuit // guarded by streamMu
	closed   bool

	room           *ibv.Memory
	mem            *socketMemory // at the start of room
	sealer, opener coder         // of outgoing and incoming bytes
	outgoing
	incoming
	reverseStream
	grant [lane.MaxSubs]lane.Grant // the grant that is being passed on
	have  int                      // bytes in mem.in that were read and not handled

	idlePolls int
	checked   time.Time    // time of the last query of the kernel about the peer
	silence   sock.Silence // how long the peer has not answered
}

// socketMemory holds the data structures whose addresses are passed to system calls, beside user buffers. A
// field that a lane does not use costs address space only, because its pages are never touched.
type socketMemory struct {
	msg   sock.Message
	iov   [4 * sendBatch]sock.Vector
	codes [pieceCodes][codeSize]byte                // of pieces to send, by number
	heads [lane.Window][frameHeader + codeSize]byte // headers of the parts to send
	short [shortFrame]byte                          // a short part behind its header
	in    [reverseInput]byte                        // input: read ahead at the receiver, the reverse stream at the sender
	out   [reverseQueue]byte                        // frames of the reverse stream to send
	stage [pieceSize]byte                           // a part whose code is not verified yet, or an eager message
}

// newSocket creates the socket that carries l, not yet connected. An error of the local address fails this lane
// only; Connect returns it.
func newSocket(d *domain, l *lane.Lane) (_ *socket, err error) {
	p := d.port
	k := &socket{lane: l, domain: d, port: p, stream: sock.None, addr: topology.OnLink(l.From.Addr, p.Now().Netdev)}
	if k.room, err = ibv.Alloc(socketMemorySize); err != nil {
		return nil, err
	}
	k.mem = &ibv.Carve[socketMemory](k.room, 1)[0]
	k.token = p.opts.Random.For(l.Name()).Uint64("token")
	k.check = wantsCheck(p.opts.Check, k.addr, l.Remote.Addr.Unmap(), p.Now())
	if l.Route != nil && p.opts.Check == CheckAuto { // a relay could alter the bytes
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

// Connect dials the receiver's half, or registers for the sender's connection.
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

// LocalError returns the local resource error that occurred while this side waited for the peer's connection,
// or nil.
func (k *socket) LocalError() error {
	if k.call == nil {
		return nil
	}
	return k.port.opts.Data.Why(k.call)
}

// attach stores a connected stream, or closes it if the lane has been closed. It may be called from any
// goroutine.
func (k *socket) attach(s *sock.Stream) {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	if k.closed || k.stream != sock.None {
		_ = s.Close() // the lane has been closed or is connected
		return
	}
	k.stream = s
}

// attached reports whether the lane has a stream. A stream stays until Close, which is called with the
// connection's mutex held.
func (k *socket) attached() bool {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	return k.stream != sock.None
}

// Terms returns both addresses of the socket, whether it is authenticated, and the relays.
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

// Number returns the stream's file descriptor, 0 before there is one.
func (k *socket) Number() int {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	return max(k.stream.Number(), 0)
}

// Remark returns "": sockets need no warning.
func (k *socket) Remark() string { return "" }

// PostProbe does nothing, because the exchange that connected the socket has validated the path in both
// directions.
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

// wrap returns the error of a system call with the names of both ends. buffer is the address of the user's
// memory that was passed to the call.
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

// errClosed is the error of a socket that the peer has closed.
var errClosed = errors.New("the peer closed the lane")

func (k *socket) wrapClosed() error {
	if k.lane.Route != nil {
		return fmt.Errorf("%w: %v: %s: %w, or a relay ended", fault.ErrPeerClosed, k.lane.Conn, k.lane.Path(), errClosed)
	}
	return fmt.Errorf("%w: %v: %v: %w", fault.ErrPeerClosed, k.lane.Conn, k.lane, errClosed)
}

// isTransient reports whether a system call did nothing for a reason that passes.
func isTransient(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.EINTR || errno == unix.ENOBUFS || errno == unix.ENOMEM
}

// noteProgress records that bytes were sent or received.
func (k *socket) noteProgress() { k.idlePolls, k.silence = 0, sock.Silence{} }

// noteIdlePoll records a poll that moved no bytes. From time to time it asks the kernel whether the peer's
// kernel acknowledges; a peer that does so may be slow for any length of time. If there is no route to the peer
// any more, the kernel sends nothing, and only keepalive probes detect it.
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

// Stalled reports whether the kernel retransmits without an answer. A peer whose process merely does not read
// still answers.
func (k *socket) Stalled() bool {
	info, err := k.stream.Info()
	return err == nil && info.Unheard(minUnanswered)
}

// Stop discards all queued output and the part that is arriving. The socket then touches no memory, because it
// only works inside calls.
func (k *socket) Stop() error {
	k.accepted, k.queued, k.eagerQueued = 0, 0, 0
	if k.part && k.in.placed() {
		k.lane.Conn.Sink.Dropped(k.lane, k.in.imm)
	}
	k.incoming = incoming{}
	k.outHead, k.outTail = 0, 0
	return nil
}

// Drained returns true, because the socket only works inside calls.
func (k *socket) Drained() bool { return true }

// Unsent returns the number of bytes that the kernel has accepted and the peer's kernel has not acknowledged.
func (k *socket) Unsent() int {
	if !k.lane.InService() {
		return 0
	}
	return k.stream.Unsent()
}

// Close closes the stream; the kernel still sends the bytes that it has accepted.
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
