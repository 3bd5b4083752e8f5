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

// ErrProtocol reports that an authenticated peer violated the protocol: a fault of the program at the other end.
var ErrProtocol = errors.New("protocol error")

// PeerError reports that a process cannot be reached, and the failure of each of its addresses.
type PeerError struct {
	Local   string // name of this node
	Peer    string // name of the other node, or "" if it is not known
	Process handshake.ProcessID
	Netdev  string // interface of the cable that leads to the neighbour; "" if the process was dialled by a handle
	Dead    bool   // an address refused, as opposed to no answer
	Cause   error  // the error before: of the last link, or of the caller's context; may be nil
	Tries   []Try
}

// Try is an address that was dialled without success, and its error.
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
		fmt.Fprintf(&b, "%s%v: %s", sep, t.Addr, describeError(t.Err))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, " (after: %v)", e.Cause)
	}
	switch {
	case !e.Dead && e.Netdev != "":
		fmt.Fprintf(&b, "; check the cable at %s, and that no firewall is in the way", e.Netdev)
	case !e.Dead:
		b.WriteString("; check that both nodes are up and that one of these addresses can be reached from here (NCCL_SOCKET_IFNAME chooses the interface)")
	case e.Refused(): // the error of the address tells why
	case errors.Is(e, handshake.ErrOtherProcess):
		b.WriteString("; these addresses belong to another machine, or the process has ended and another has its port")
	case errors.Is(e, syscall.ECONNREFUSED):
		b.WriteString("; the process has ended, or a firewall rejects connections to its port")
	}
	return b.String()
}

// Refused reports whether the process is alive and refused the session.
func (e *PeerError) Refused() bool {
	var version *handshake.VersionError
	return errors.As(e, &version) || slices.ContainsFunc(e.Tries, func(t Try) bool {
		var reject *handshake.RejectError
		return errors.As(t.Err, &reject) && reject.Code != handshake.RejectBusy
	})
}

// ownFault returns the error of a resource that this node ran out of while dialling, or nil.
func ownFault(tries []Try) error {
	for _, t := range tries {
		if limit.IsOwn(t.Err) {
			return t.Err
		}
	}
	return nil
}

// Unwrap returns the error of each address.
func (e *PeerError) Unwrap() []error {
	var errs []error
	for _, t := range e.Tries {
		errs = append(errs, t.Err)
	}
	return errs
}

// describeError returns an address's error as text for users.
func describeError(err error) string {
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

// final reports whether a try decides that the process cannot be reached, unless another address contradicts it at
// once. A rejection comes from the process itself. A refused connection is final only at an address where the process
// has been seen before.
func (t Try) final(known bool) bool {
	var reject *handshake.RejectError
	return errors.As(t.Err, &reject) && reject.Code != handshake.RejectBusy || known && t.sure && answered(t.Err)
}

// answered reports whether an error is an answer from the host at the address, as opposed to silence.
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
