package conn

import (
	"context"
	"log/slog"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/crew"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
)

// Env is what the connections of a process have in common.
type Env struct {
	Log          *slog.Logger
	LaneWait     time.Duration // how long a silent peer is waited for, and a way to it
	ProofWait    time.Duration // how long lanes may take to prove themselves once one has
	TimeScale    float64       // multiplies every deadline
	Clock        clock.Clock   // makes the timers
	Page         *stats.Page   // where connections are shown; nil: nowhere
	FirstFailure FirstFailure  // of all connections

	LanePool   *crew.Crew                 // makes and destroys lanes
	Background func(func())               // runs a function on a goroutine that the process's end waits for
	Context    context.Context            // ends then
	WarnOnce   func(subject, text string) // logs the first warning about a subject
	InfoOnce   func(subject, text string) // logs the first news about a subject
	// Again reports whether the user was warned of a subject a moment ago: what happens to a
	// cable happens to every connection. Nil: never.
	WarnedRecently func(subject string) bool
	Forget         func(*Conn) // the connection is to hear no more messages
	// Plan is a receiver's half of each lane that a sender offers.
	Plan func(c *Conn, offered []handshake.Lane) ([]lane.Plan, error)
	// Lacks is told of a sender that has lost a lane. It does not block.
	RequestRepair func(*Conn)
}

// Scaled is d stretched by the time scale.
func (e *Env) Scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * e.TimeScale)
}
