// Package conn is one end of a connection: its lanes and the messages that they carry. A [Sender] sends, a [Receiver] receives;
// an end that does neither is a trial, which finds out which paths work.
//
// What happens, and where it is written:
//
//	set-up      setup.go, build.go, exchange.go, connect.go, validate.go; join.go for lanes that come later
//	messages    sender.go, receiver.go, request.go; grant.go and incoming.go for what lanes report; split.go and speed.go for
//	            which lane carries what; eager.go and unexpected.go for messages that go before their grant
//	failover    events.go for events of lanes, drain.go for a lane that has failed, failover.go for what it carried; stall.go finds
//	            lanes on which nothing moves, flap.go leaves alone those that fail again and again
//	memory      region.go, and domain.go for ports that join
//	the end     ending.go, stop.go, loss.go
//	shown       shown.go, finding.go, trace.go
//
// The kind of a lane is not known here: the domains that its ports opened are polled.
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
// # Messages
//
// The receiver grants a buffer; the sender writes only into what was granted, splitting
// a message into parts, one part to a lane; the immediate of a part's end names slot,
// sub-receive and part. A send is done when the lanes have delivered its parts. What a
// lane has of the traffic is its weight, as package path has decided, or less while it
// is measured to be slower than that promises beside the others.
//
// Where all lanes allow it, a short message goes before its grant, and the receiver finds its
// buffer: see [lane.Eager]. What the receiver would send then waits, if need be until the sender
// says that it is missed: over the lane, for a receiver that looks, and over the session, for one
// whose program waits for something else.
//
// Who wants to know which lane carried what is a [Watch]: Test tells it of the parts of
// its request, before it reports that done.
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
// order, and what goes wrong in others, is searched by tests/failover. A part remembers the
// lane that carries it, and a receive the one that carried its grant, so that what was lost
// with a lane can go over another.
//
// Evidence is what a carrier, a device or the peer says of a lane; and, at the sender, that
// a lane has delivered nothing for long while others delivered what came later: see checkStalls.
// It is never that a peer is slow.
//
// # Threads and locks
//
// Isend, Irecv and Test never block: nil, or false, means "not yet, call again". They
// run on the caller's thread with the connection locked by TryLock: when the control
// side holds it they answer "not yet". They allocate nothing, but for the word to a peer
// that a message has waited a millisecond for it. A panic in them passes through, with
// the connection unlocked, to whoever recovers it, who calls Fail.
//
// The mutex guards lanes, domains and requests. It is held while queue pairs drain, for up
// to two seconds, and while they are destroyed, which waits until the events that have been
// read of them are acknowledged. So whoever may be waited for takes none: a device's events
// and a session's messages end a connection with [Conn.Fail] or [Conn.Deliver], which set its
// ending without it, and accuse a lane with [Conn.ReportFailure].
package conn
