package control

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"

	"ncclmesh/handshake"
	"ncclmesh/transport/accept"
)

// Limits of connections that are not yet authenticated. The total is lower if the process may have few descriptors.
const (
	maxPending   = 256
	maxPerSource = 64
)

// Reasons for refusals beside those of package accept, as counted and logged.
const (
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

// refusal returns the error of a handshake that refuses the dialler: the reason to count and log, and the code to send.
// Reason "" is not counted; code 0 is not sent.
func refusal(reason string, code handshake.RejectCode, err error) *accept.Refusal {
	r := &accept.Refusal{Reason: reason, Err: err}
	if code != 0 {
		r.Reject = handshake.Reject(code)
	}
	return r
}

// authenticate runs the listener's side of the handshake. If it returns nil, the connection belongs to a session.
func (e *Endpoint) authenticate(c *accept.Conn) error {
	x, challenge := handshake.NewListener(e.cfg.Process, e.cfg.Random.For(c.Source))
	if _, err := c.Conn.Write(challenge); err != nil {
		return err
	}
	in := bufio.NewReader(c.Conn)
	raw, err := handshake.ReadHello(in)
	if err != nil {
		return refuseRead(err)
	}
	if err := c.HelloRead(); err != nil {
		return err
	}
	hello, err := x.HearHello(raw)
	if err != nil {
		return refusal(reasonMalformed, 0, err)
	}
	if hello.Resume() {
		return e.acceptResume(c, x, hello, in)
	}
	return e.acceptNew(c, x, hello, in)
}

// refuseRead returns a refusal if the dialler sent something wrong, and err if no whole message arrived. A dialler that
// closes the connection without sending anything has found a better address.
func refuseRead(err error) error {
	var version *handshake.VersionError
	var network net.Error // includes os.ErrDeadlineExceeded
	switch {
	case errors.As(err, &version):
		return refusal(reasonVersion, handshake.RejectVersion, err)
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	return refusal(reasonMalformed, 0, err)
}

// acceptNew completes the handshake of a new session.
func (e *Endpoint) acceptNew(c *accept.Conn, x *handshake.Exchange, hello *handshake.Hello, in *bufio.Reader) error {
	netdev, err := e.admit(c, x, hello)
	if err != nil {
		return err
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
		return err
	}
	peer := Peer{Process: hello.Process, Node: hello.Node, Hostname: hello.Hostname, Ports: hello.Ports, Settings: hello.Settings}
	if err := e.agree(&peer, netdev, c.Conn); err != nil {
		e.acceptor.Count(reasonSettings)
		_, _ = c.Conn.Write(raw) // so that the dialler finds the same differences
		if e.cfg.Differ != nil {
			e.cfg.Differ(hello.Listen, err)
		}
		return err
	}
	// If the dialler has chosen another address meanwhile, this session must not displace the one that it made there.
	// Its first frame shows that it uses this one.
	l := newLink(c.Conn, in, keys, nil)
	o := &offer{keys: keys, peer: peer, hello: hello, source: c.Source.Addr()}
	if netdev == "" {
		e.addOffer(o)
	}
	if _, err := c.Conn.Write(raw); err != nil {
		return err
	}
	if l.early, err = l.opener.Read(in); err != nil {
		return refuseRead(err)
	}
	c.Authenticated()
	if o.expiry != nil && !e.removeOffer(keys.Session) {
		return errors.New("it continues over another link")
	}
	s, err := e.newAccepted(o, netdev)
	if err != nil {
		return err
	}
	entered = true // from here on the session owns the slot
	s.attach(l, 0)
	e.log.Debug("control: accepted a session", "session", s.id, "peer", s.peer.Hostname, "remote", c.Source)
	return nil
}

// admit checks a Hello that requests a new session. For a neighbour, netdev is the interface that it arrived on, with a
// slot reserved there. The error is a *accept.Refusal.
func (e *Endpoint) admit(c *accept.Conn, x *handshake.Exchange, hello *handshake.Hello) (netdev string, err error) {
	if hello.Listen == neighbourListen {
		return e.admitNeighbour(c, x)
	}
	secret, err := e.secret(hello.Listen)
	if err != nil {
		return "", err
	}
	if err := x.Verify(secret[:]); err != nil {
		return "", refusal(reasonSecret, handshake.RejectSecret, err)
	}
	return "", nil
}

// acceptResume continues a session over a new link.
func (e *Endpoint) acceptResume(c *accept.Conn, x *handshake.Exchange, hello *handshake.Hello, in *bufio.Reader) error {
	s, resume := e.session(hello.Session, hello.Accepted), handshake.Key{}
	o := e.offerOf(hello.Session)
	switch {
	case s != nil:
		resume = s.resume
	case o != nil && !hello.Accepted:
		resume = o.keys.Resume
	default:
		return refusal(reasonSession, handshake.RejectSession, fmt.Errorf("session %v is not known here", hello.Session))
	}
	if err := x.Verify(resume[:]); err != nil {
		return refusal(reasonSecret, 0, err)
	}
	if s == nil {
		if !e.removeOffer(hello.Session) {
			return refusal(reasonSession, handshake.RejectBusy, fmt.Errorf("session %v begins over another link", hello.Session))
		}
		var err error
		if s, err = e.newAccepted(o, ""); err != nil {
			return err
		}
	}
	if s.Neighbour() {
		if netdev, err := e.cable(c.Conn); err != nil {
			return refusal(reasonCable, 0, err)
		} else if netdev != s.netdev {
			return refusal(reasonCable, 0, fmt.Errorf("its session is over %s, and it came over %s", s.netdev, netdev))
		}
	}
	c.Authenticated()
	return s.readmit(c.Conn, in, x, hello.Received)
}
