// Package lane defines lanes: what a connection uses of one path between a port of this node and one of
// the peer's, independent of the transport that carries it.
//
// # Types
//
//	Port     a port of this node at which lanes of one kind begin; one for the whole process
//	Domain   what the lanes of one connection over one port share
//	Lane     one lane: its names, its state, its share of the traffic
//	Carrier  the transport of one lane: a queue pair (lane/verbs), a socket (lane/tcp), queue
//	         pairs through relays (lane/circuit)
//	Region   the user's memory, registered in every domain of a connection
//	Sink     the message layer, which lanes notify of deliveries, arrivals and grants
//	Owner    the connection, which lanes notify of failures
//
// A further transport, such as shared memory, would be another package with a Port, a Domain and a Carrier.
// Only package path, which selects paths, depends on the kind of a lane.
//
// # Traffic
//
// The receiver grants buffers: entries of a ring that lies at the sender ([Grant]). The
// sender sends parts of a message into granted buffers; the last write of a part carries an
// immediate ([Imm]) that identifies it. Send returns once the lane has queued a part;
// Sink.Delivered is called once the peer has received it.
//
// # Threads
//
// The caller of a lane, a carrier or a domain holds the connection's mutex, except where a
// method says otherwise. They call the Sink from inside such a call; the methods of [Owner] may
// be called from any goroutine. Package path decides a lane's weight; the lane's measured speed decides
// its share of that ([Lane.Rate]). [State] shows how its state changes.
package lane
