// Package bundle is the proven set of lanes between two processes for one connection:
// how it is set up, who has found it over, and how its lanes come to rest.
//
// A bundle knows nothing of messages: those are the [Half]'s, which stands on it. It
// knows no kind of lane either: it polls the domains that its ports opened. A trial is
// a bundle whose half has no messages.
//
// # Set-up
//
//	sender                                   receiver
//	lanes made                       (Establish)
//	Open{lanes}                      ──►     lanes made, receives posted, connected (Answer)
//	connected                        ◄──     Accept{lanes}
//	Connected{lanes}, proofs         ──►     proofs
//	                               ◄─ ─►     LaneDown{lane} of those that fail
//	Proved{lanes}                    ──►
//	in service                       ◄──     in service, Proved{lanes}
//
// A lane that fails on the way is left out; those that both sides have proved are used. When
// none is, a trial has its outcome, and a connection, whose paths a trial has proved, waits
// for a way as if it had lost its lanes, unless a node lacked something.
// Lanes that join a connection later come by the same exchange, with an epoch of their
// own.
//
// # Failover
//
//	either side                              the other
//	evidence; its half stopped, at rest
//	LaneDown{lane, epoch}            ──►     its half stopped, at rest
//	                                 ◄──     LaneDown
//	receiver: what has arrived, and grants again what went over the lane
//	Report{lane, epoch}              ──►     sender: sends the rest again
//
// Whoever finds evidence tells it without the mutex; a goroutine that runs while a lane
// is leaving heeds it. When none is in service the connection waits for one. Why in this
// order, and what goes wrong in others, is searched by tests/failover.
//
// Evidence is what a carrier, a device or the peer says of a lane; and, at the sender, that
// a lane has delivered nothing for long while others delivered what came later: see judge.
// It is never that a peer is slow.
//
// # Locks
//
// A bundle's mutex guards its lanes, its domains and the half's requests. The data path
// takes it with TryLock. It is held while queue pairs drain, for up to two seconds, and
// while they are destroyed, which waits until the events that have been read of them
// are acknowledged. So whoever may be waited for takes none: a device's events and a
// session's messages end a bundle with [Bundle.Fail] or [Bundle.Deliver], which set its
// ending without it, and accuse a lane with [Bundle.Evidence].
package bundle
