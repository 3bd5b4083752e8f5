package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"ncclmesh/comm/pace"
	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/sock"
)

// DefaultTimeout is how long the calls of this package wait for other ranks, unless the caller says otherwise.
const DefaultTimeout = 30 * time.Second

// MaxRanks is the largest size of a job.
const MaxRanks = 1024

// A Host is what the package needs of its process. Its fields are set before its first use and do not change.
type Host struct {
	Transport *transport.Transport
	Network   sock.Network // for joining by an address; nil: the kernel's
	Clock     clock.Clock
	Random    random.Source
	Key       string // the secret that all nodes share, for joining by an address
	Log       *slog.Logger
	Spins     int // see [pace.Pace]

	// Lookup returns the addresses of a host name. Nil: names are not accepted.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	// Retain keeps the transport open until release is called, for a root, which may outlive the members in its process. Nil:
	// the transport stays open.
	Retain func() (release func())

	mu    sync.Mutex
	roots map[ID]*Root // the roots in this process
}

// An ID identifies a job, and proves that its bearer was invited: it is the handle of the root's listener. It contains a secret.
type ID [handshake.HandleSize]byte

// check returns an error if the ID was not made by this version of the package.
func (id ID) check() (handshake.Handle, error) {
	raw := [handshake.HandleSize]byte(id)
	h, err := handshake.DecodeHandle(&raw)
	if err != nil {
		return h, fmt.Errorf("%w: the unique id is not one: %w; pass the id of rank 0 to all ranks, all %d bytes of it", fault.ErrUsage, err, len(id))
	}
	return h, nil
}

// longestPause is how long a caller that waits pauses between two polls, at most.
const longestPause = 2 * time.Millisecond

func (h *Host) newPace() *pace.Pace {
	return &pace.Pace{Clock: h.Clock, Spins: h.Spins, Max: longestPause}
}

// rootOf returns the root of a job, if it is in this process, or nil.
func (h *Host) rootOf(id ID) *Root {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.roots[id]
}

// closeAll closes all outboxes and inboxes that are not nil.
func closeAll(all ...interface{ close() error }) error {
	var errs []error
	for _, c := range all {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}
