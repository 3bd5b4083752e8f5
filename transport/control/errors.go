package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
)

// ErrProtocol says that an authentic peer said what it must not: a fault of the program at the other end.
var ErrProtocol = errors.New("protocol error")

// PeerError says that a process cannot be reached, and what each of its addresses said.
type PeerError struct {
	Local   string // this node
	Peer    string // the other one, if its name is known
	Process handshake.ProcessID
	Netdev  string // at whose cable it is a neighbour; "" if a handle leads to it
	Dead    bool   // there was a definite no, rather than silence
	Cause   error  // what came before: why the last link broke, why the caller gave up; may be nil
	Tries   []Try
}

// Try is an address that was dialled in vain, and what it said.
type Try struct {
	Addr netip.AddrPort
	Err  error

	sure bool // see address
}

func (e *PeerError) Error() string {
	var b strings.Builder
	peer := "a node"
	if e.Peer != "" {
		peer = "node " + e.Peer
	}
	fmt.Fprintf(&b, "node %s cannot reach process %.8v on %s", e.Local, e.Process, peer)
	for i, t := range e.Tries {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%v: %s", sep, t.Addr, saying(t.Err))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, " (after: %v)", e.Cause)
	}
	switch {
	case !e.Dead && e.Netdev != "":
		fmt.Fprintf(&b, "; check the cable at %s, and that no firewall is in the way", e.Netdev)
	case !e.Dead:
		b.WriteString("; check that both nodes are up and that one of these addresses can be reached from here (NCCL_SOCKET_IFNAME chooses the interface)")
	case e.Refused(): // and has said why
	case errors.Is(e, handshake.ErrOtherProcess):
		b.WriteString("; these addresses belong to another machine, or the process has ended and another has its port")
	case errors.Is(e, syscall.ECONNREFUSED):
		b.WriteString("; the process has ended, or a firewall rejects connections to its port")
	}
	return b.String()
}

// Refused reports whether the process was found, lives, and does not want to talk.
func (e *PeerError) Refused() bool {
	var version *handshake.VersionError
	return errors.As(e, &version) || slices.ContainsFunc(e.Tries, func(t Try) bool {
		var reject *handshake.RejectError
		return errors.As(t.Err, &reject) && reject.Code != handshake.RejectBusy
	})
}

// ownFault is what this node lacked to dial at all, if that may be why nobody answered.
func ownFault(tries []Try) error {
	for _, t := range tries {
		if limit.IsOwn(t.Err) {
			return t.Err
		}
	}
	return nil
}

// Unwrap returns what each address said.
func (e *PeerError) Unwrap() []error {
	var errs []error
	for _, t := range e.Tries {
		errs = append(errs, t.Err)
	}
	return errs
}

// saying puts an address's error into a user's words.
func saying(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed the connection without an answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	}
	return err.Error()
}

// final reports whether a try settles the matter, unless another address contradicts it at once. What rejects us is the
// process itself, and so was what refuses where a known process has been seen.
func (t Try) final(known bool) bool {
	var reject *handshake.RejectError
	return errors.As(t.Err, &reject) && reject.Code != handshake.RejectBusy || known && t.sure && answered(t.Err)
}

// answered reports whether an error is a definite no, from whoever has the address, rather than silence.
func answered(err error) bool {
	var reject *handshake.RejectError
	if errors.As(err, &reject) {
		return reject.Code != handshake.RejectBusy
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return true
	}
	var network net.Error // includes errno and context.DeadlineExceeded
	return !errors.As(err, &network) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, errAbandoned)
}
