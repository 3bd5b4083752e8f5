// Package conn implements one end of a connection: its lanes, and the messages that they carry. A [Sender] sends, a [Receiver]
// receives, and a probe, a [Conn] without either, only validates paths.
//
// Where to find what:
//
//	set-up      setup.go, build.go, exchange.go, connect.go, validate.go; join.go for lanes that join later
//	messages    sender.go, receiver.go, request.go; grant.go and incoming.go are called by lanes; split.go and speed.go choose
//	            the lanes of a message; eager.go and unexpected.go handle messages that are sent before their grant
//	windows     window.go at the receiver; put.go and putlost.go at the sender
//	failover    package failover decides what follows the failure of a lane; events.go queues events of lanes, drain.go drains a
//	            lane that has failed, failover.go resends what it lost; stall.go finds lanes on which nothing moves, flap.go
//	            delays the return of paths that fail again and again
//	memory      region.go; domain.go for ports that join
//	the end     ending.go, stop.go, failure.go
//	reporting   stats.go, lanefailure.go, trace.go
//
// The package does not depend on the kind of a lane. It polls the domains that the lanes' ports opened.
//
// # Set-up
//
//	sender                                   receiver
//	makes lanes                      (Establish)
//	Open{lanes}                      ──►     makes lanes, posts receives, connects (Answer)
//	connects                         ◄──     Accept{lanes}
//	Connected{lanes}, packets        ──►     validation packets
//	                               ◄─ ─►     LaneDown{lane} for each lane that fails
//	Validated{lanes}                 ──►
//	in service                       ◄──     in service, Validated{lanes}
//
// A lane that fails during set-up is left out. The lanes that both sides have validated come into service. If there is none, a
// probe has its result. A connection, whose paths a probe has validated before, then waits for a path as if it had lost its
// lanes, unless a node lacked a resource. Lanes that join a connection later come into service by the same exchange, with an
// epoch of their own.
//
// # Messages
//
// The receiver grants a buffer, and the sender writes only into granted buffers. It splits a message into parts, at most one for
// each lane. The immediate at the end of a part names slot, sub-receive and part. A send is done when the lanes have delivered
// all its parts. Package path decides the weight of a lane, which sets the lane's share of the traffic. The share is smaller
// while the lane is measured to be slower, compared with the other lanes, than its weight promises.
//
// If all lanes allow it, the sender sends a short message before its grant, and the receiver finds the buffer: see [lane.Eager].
// The receiver then defers grants until the sender asks for them. The sender asks over a lane, which is read when the program
// tests a receive, and over the session, because the program may be waiting for something else.
//
// # Windows
//
// A receiver may open memory as a [Window], into which the sender puts bytes without a grant. Nothing tells the receiver of a put, but
// a signal, which is a message that arrives after the bytes of all earlier puts: see [Sender.Signal], and putlost.go for lanes that fail. The
// receiver announces windows and their keys over the session, again when a port has joined, and ends a window only when the sender has
// agreed. Package onesided makes of both what programs use.
//
// # Watches
//
// A [Watch] is told which lane carried which part of a request. Test tells it before it reports the request done.
//
// # Failover
//
//	one side                                 the other
//	failure; stops and drains its end
//	LaneDown{lane, epoch}            ──►     stops and drains its end
//	                                 ◄──     LaneDown
//	receiver: reports what has arrived, and repeats the grants that went over the lane
//	Report{lane, epoch}              ──►     sender: resends the rest
//
// The code that finds a failure queues an event without locking mu. The event goroutine, which runs while a lane drains, handles
// the event. If no lane is in service, the connection waits for one. Package failover decides which step is next; it says why
// they come in this order, and its tests show what goes wrong in others. A part records the lane that carries it, and a receive
// the lane that carried its grant, so that what was lost with a lane can be sent over another.
//
// A lane fails if a carrier, a device or the peer reports a failure; or if, at the sender, it has delivered nothing for long
// while other lanes delivered what was posted later: see checkStalls. A slow peer is never a failure of a lane.
//
// # Threads and locks
//
// Isend, Irecv and Test do not block: nil, or false, means "not yet, call again". They run on the caller's thread and lock the
// connection with TryLock. If another goroutine has locked it they answer "not yet". They do not allocate, except for the message
// to a peer for which a message has waited a millisecond. A panic in them unlocks the connection and passes through to the
// caller, which recovers it and calls Fail.
//
// mu guards lanes, domains and requests. It is held while queue pairs drain, for up to two seconds, and while they are destroyed,
// which waits until the events that have been read from them are acknowledged. Code that a holder of mu may wait for must
// therefore not lock mu: handlers of device events and of session messages end a connection with [Conn.Fail] or [Conn.Deliver],
// which store the ending without mu, and report a failed lane with [Conn.ReportFailure].
package conn
