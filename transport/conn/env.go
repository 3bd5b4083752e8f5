package conn

import (
	"context"
	"log/slog"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/threads"
)

// Env holds what all connections of a process share.
type Env struct {
	Log          *slog.Logger
	LaneWait     time.Duration // how long to wait for a silent peer, or for a path to it
	ProofWait    time.Duration // how long other lanes may take to validate after the first
	Clock        clock.Clock   // makes the timers, and has the factor that every deadline is multiplied by
	Page         *stats.Page   // publishes connections to other processes; nil: they are not published
	FirstFailure FirstFailure  // of all connections

	LanePool   *threads.Pool              // threads that make and destroy lanes
	Background func(func())               // runs a function on a goroutine that the end of the process waits for
	Context    context.Context            // cancelled when the process ends
	FlushGPU   func() error               // makes all data in GPU memory visible without the help of a device; nil: not possible
	WarnOnce   func(subject, text string) // logs the first warning about a subject
	InfoOnce   func(subject, text string) // logs the first message about a subject
	// WarnedRecently reports whether the user was warned about a subject a moment ago: every
	// connection sees the failure of a cable, and one warning is enough. Nil: never.
	WarnedRecently func(subject string) bool
	Forget         func(*Conn) // stops the delivery of messages to a connection
	// Plan returns the receiver's end of each lane that a sender offers.
	Plan func(c *Conn, offered []handshake.Lane) ([]lane.Spec, error)
	// RequestRepair asks for replacement of the lanes that a sender has lost. It does not block.
	RequestRepair func(*Conn)
}
