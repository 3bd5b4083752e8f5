package accept

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"

	"ncclmesh/transport/limit"
)

// Reasons for refusing a connection before its handshake has decided, as counted and logged. A handshake has reasons of its
// own beside them.
const (
	TooMany           = "too many unauthenticated connections"
	TooManyFromSource = "too many unauthenticated connections from one address"
	AcceptFailed      = "it could not be accepted here"
	TimedOut          = "not authenticated in time"
	Truncated         = "ended in the middle of a message"
)

// A Refusal is the error of a handshake that decides to refuse its connection.
type Refusal struct {
	Reason string // to count and log; "": neither
	Reject []byte // is sent to the peer before the connection is closed
	Err    error  // details for the log; may be nil
}

func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Reason
	}
	return r.Err.Error()
}

func (r *Refusal) Unwrap() error { return r.Err }

// maxLogged is how many distinct refusals are logged.
const maxLogged = 256

// Refusals counts refused connections by reason, and logs the first one of each reason and address. Its methods may be
// called from any goroutine.
type Refusals struct {
	name string // of the listeners
	log  *slog.Logger

	mu        sync.Mutex // a leaf lock
	counts    map[string]uint64
	logged    map[refused]struct{}
	lastLimit error  // last error about a resource that this node ran out of
	limitHits uint64 // number of such errors
}

type refused struct {
	reason string
	source netip.Addr
}

// Count counts a refusal that is not logged here.
func (r *Refusals) Count(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countLocked(reason)
}

func (r *Refusals) countLocked(reason string) {
	if r.counts == nil {
		r.counts = map[string]uint64{}
	}
	r.counts[reason]++
}

// Refuse counts a refusal, and logs it once for its reason and address. The address is not known if the connection could
// not be accepted; it is the zero value then. err may be nil.
func (r *Refusals) Refuse(reason string, from netip.AddrPort, err error) {
	r.mu.Lock()
	r.countLocked(reason)
	if limit.IsOwn(err) {
		r.lastLimit = err
		r.limitHits++
	}
	k := refused{reason, from.Addr()}
	_, again := r.logged[k]
	first := !again && len(r.logged) < maxLogged
	if first {
		if r.logged == nil {
			r.logged = map[refused]struct{}{}
		}
		r.logged[k] = struct{}{}
	}
	last := first && len(r.logged) == maxLogged
	r.mu.Unlock()
	if first {
		args := []any{"reason", reason}
		if from.IsValid() {
			args = append([]any{"from", from}, args...)
		}
		if err != nil {
			args = append(args, "error", err)
		}
		r.log.Warn(r.name+": refused a connection; more of this kind from this address are only counted", args...)
	}
	if last {
		r.log.Warn(r.name + ": connections refused from now on are only counted")
	}
}

// Counts returns the number of refusals by reason.
func (r *Refusals) Counts() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// Mark is a moment; see Since.
type Mark struct{ limitHits, evictions uint64 }

// Mark returns the current moment.
func (r *Refusals) Mark() Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Mark{r.limitHits, r.evictionsLocked()}
}

// Since returns the cause at this node that may have prevented a peer from connecting since a moment: this node ran out of a
// resource, or closed pending connections because there were too many. It returns nil if there is none.
func (r *Refusals) Since(m Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limitHits > m.limitHits {
		return r.lastLimit
	}
	if n := r.evictionsLocked() - m.evictions; n > 0 {
		return fmt.Errorf("the %s has too many connections: %d unauthenticated ones were closed meanwhile; the log names the first", r.name, n)
	}
	return nil
}

func (r *Refusals) evictionsLocked() uint64 { return r.counts[TooMany] + r.counts[TooManyFromSource] }
