package control

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/lobby"
	"ncclmesh/transport/sock"
)

// Limits of connections that are not yet authenticated. The total is lower if the process may have few descriptors.
const (
	maxPending   = 256
	maxPerSource = 64
)

// Reasons of refusals, as counted and logged.
const (
	reasonCrowded   = "too many unauthenticated connections"
	reasonSource    = "too many unauthenticated connections from one address"
	reasonAccept    = "it could not be accepted here"
	reasonSlow      = "not authenticated in time"
	reasonTruncated = "ended in the middle of a message"
	reasonVersion   = "wrong version"
	reasonMalformed = "malformed message"
	reasonListen    = "unknown listen id"
	reasonClosed    = "closed listen id"
	reasonAgain     = "connection requested twice"
	reasonSecret    = "wrong secret"
	reasonSession   = "unknown session"
	reasonFrame     = "frame with a wrong MAC"
	reasonSettings  = "other settings"

	reasonNeighbour  = "neighbours are not served"
	reasonNeighbours = "too many neighbours over one cable"
	reasonKey        = "a neighbour with another key"
	reasonCable      = "a neighbour that came over no cable"
)

// pendingConn is a connection that is not yet authenticated.
type pendingConn = lobby.Stranger[sock.Conn]

// accept accepts connections until the listener is closed.
func (e *Endpoint) accept() {
	for {
		c, err := e.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Peers stay in the kernel's queue meanwhile.
			e.refuse(reasonAccept, netip.AddrPort{}, limit.Own(err))
			if !e.cfg.Clock.Pause(e.ctx, e.scaled(maxPause)) {
				return
			}
			continue
		}
		s := e.lobby.Enter(c, c.Remote())
		if s == nil {
			e.refuse(reasonCrowded, c.Remote(), nil)
			_ = c.Close()
			continue
		}
		if !e.spawn(func() { e.receive(s) }) {
			e.lobby.Leave(s)
			_ = c.Close()
		}
	}
}

// receive runs the listener's side of the handshake on a pending connection.
func (e *Endpoint) receive(s *pendingConn) {
	_ = s.Conn.SetDeadline(time.Now().Add(e.scaled(authTimeout)))
	reason, reject, err := e.exchange(s)
	eviction := e.lobby.Leave(s)
	if err == nil {
		return // the connection belongs to a session now
	}
	switch {
	case e.ctx.Err() != nil:
	case eviction == lobby.OverShare:
		e.refuse(reasonSource, s.Source, nil)
	case eviction == lobby.OverCrowd:
		e.refuse(reasonCrowded, s.Source, nil)
	case reason != "":
		e.refuse(reason, s.Source, err)
	}
	if reject != 0 {
		_, _ = s.Conn.Write(handshake.Reject(reject))
	}
	_ = s.Conn.Close()
}

// exchange returns nil if the connection has become a session's link. Otherwise it returns the reason to count, or "",
// and the code to send to the dialler, or 0.
func (e *Endpoint) exchange(s *pendingConn) (reason string, reject handshake.RejectCode, err error) {
	x, challenge := handshake.NewListener(e.cfg.Process, e.cfg.Random.For(s.Source))
	if _, err := s.Conn.Write(challenge); err != nil {
		return "", 0, err
	}
	in := bufio.NewReader(s.Conn)
	raw, err := handshake.ReadHello(in)
	if err != nil {
		reason, reject = explain(err)
		return reason, reject, err
	}
	if !e.lobby.Heard(s) {
		return "", 0, net.ErrClosed
	}
	hello, err := x.HearHello(raw)
	if err != nil {
		return reasonMalformed, 0, err
	}
	if hello.Resume() {
		return e.acceptResume(s, x, hello, in)
	}
	return e.acceptNew(s, x, hello, in)
}

// explain returns the reason and the code for an error while a Hello was read. A dialler that closes the connection
// without sending anything has found a better address, which is no reason.
func explain(err error) (reason string, reject handshake.RejectCode) {
	var version *handshake.VersionError
	var network net.Error
	switch {
	case errors.As(err, &version):
		return reasonVersion, handshake.RejectVersion
	case errors.Is(err, os.ErrDeadlineExceeded):
		return reasonSlow, 0
	case errors.Is(err, io.EOF):
		return "", 0
	case errors.Is(err, io.ErrUnexpectedEOF):
		return reasonTruncated, 0
	case errors.As(err, &network):
		return "", 0 // reset by the dialler
	default:
		return reasonMalformed, 0
	}
}

// acceptNew completes the handshake of a new session.
func (e *Endpoint) acceptNew(v *pendingConn, x *handshake.Exchange, hello *handshake.Hello, in *bufio.Reader) (string, handshake.RejectCode, error) {
	netdev, reason, reject, err := e.admit(v, x, hello)
	if err != nil {
		return reason, reject, err
	}
	entered := false
	if netdev != "" {
		defer func() {
			if !entered {
				e.releaseSlot(netdev)
			}
		}()
	}
	raw, keys, err := x.SayWelcome(&handshake.Welcome{
		Process: e.cfg.Process, Node: e.cfg.Node, Hostname: e.cfg.Hostname, Ports: e.ports(), Settings: e.settingsFor(netdev),
	})
	if err != nil {
		e.log.Error("control: cannot describe this node to a peer", "error", err)
		return "", 0, err
	}
	peer := Peer{Process: hello.Process, Node: hello.Node, Hostname: hello.Hostname, Ports: hello.Ports, Settings: hello.Settings}
	if err := e.agree(&peer, netdev, v.Conn); err != nil {
		e.count.refuse(reasonSettings)
		_, _ = v.Conn.Write(raw) // so that the dialler finds the same differences
		if e.cfg.Differ != nil {
			e.cfg.Differ(hello.Listen, err)
		}
		return "", 0, err
	}
	// If the dialler has chosen another address meanwhile, this session must not displace the one that it made there.
	// Its first frame shows that it uses this one.
	l := newLink(v.Conn, in, keys, nil)
	o := &offer{keys: keys, peer: peer, hello: hello, source: v.Source.Addr()}
	if netdev == "" {
		e.addOffer(o)
	}
	if _, err := v.Conn.Write(raw); err != nil {
		return "", 0, err
	}
	if l.early, err = l.opener.Read(in); err != nil {
		reason, _ := explain(err)
		return reason, 0, err
	}
	e.lobby.Leave(v)
	if o.expiry != nil && !e.removeOffer(keys.Session) {
		return "", 0, errors.New("it continues over another link")
	}
	s, err := e.newAccepted(o, netdev)
	if err != nil {
		return "", 0, err
	}
	entered = true // from here on the session owns the slot
	s.attach(l, 0)
	e.log.Debug("control: accepted a session", "session", s.id, "peer", s.peer.Hostname, "remote", v.Source)
	return "", 0, nil
}

// admit checks a Hello that requests a new session. For a neighbour, netdev is the interface that it arrived on, with a
// slot reserved there. On an error it returns the reason to count, and the code to send to the dialler.
func (e *Endpoint) admit(v *pendingConn, x *handshake.Exchange, hello *handshake.Hello) (netdev, reason string, reject handshake.RejectCode, err error) {
	if hello.Listen == neighbourListen {
		return e.admitNeighbour(v, x)
	}
	secret, reason, reject, err := e.secret(hello.Listen)
	if err != nil {
		return "", reason, reject, err
	}
	if err := x.Verify(secret[:]); err != nil {
		return "", reasonSecret, handshake.RejectSecret, err
	}
	return "", "", 0, nil
}

// acceptResume continues a session over a new link.
func (e *Endpoint) acceptResume(v *pendingConn, x *handshake.Exchange, hello *handshake.Hello, in *bufio.Reader) (string, handshake.RejectCode, error) {
	s, resume := e.session(hello.Session, hello.Accepted), handshake.Key{}
	o := e.offerOf(hello.Session)
	switch {
	case s != nil:
		resume = s.resume
	case o != nil && !hello.Accepted:
		resume = o.keys.Resume
	default:
		return reasonSession, handshake.RejectSession, fmt.Errorf("session %v is not known here", hello.Session)
	}
	if err := x.Verify(resume[:]); err != nil {
		return reasonSecret, 0, err
	}
	if s == nil {
		if !e.removeOffer(hello.Session) {
			return reasonSession, handshake.RejectBusy, fmt.Errorf("session %v begins over another link", hello.Session)
		}
		var err error
		if s, err = e.newAccepted(o, ""); err != nil {
			return "", 0, err
		}
	}
	if s.Neighbour() {
		if netdev, err := e.cable(v.Conn); err != nil {
			return reasonCable, 0, err
		} else if netdev != s.netdev {
			return reasonCable, 0, fmt.Errorf("its session is over %s, and it came over %s", s.netdev, netdev)
		}
	}
	e.lobby.Leave(v)
	reject, err := s.readmit(v.Conn, in, x, hello.Received)
	return "", reject, err
}
