// Package lane is what a connection uses of one path between a port of this node and
// one of the peer's, whatever carries it.
//
// # Who is who
//
//	Port     a port of this node on which lanes of one kind begin, of the whole process
//	Domain   what the lanes of one connection over one port share
//	Lane     one of them: its names, its state, its share of the traffic
//	Carrier  what moves the lane's bytes: a queue pair (lane/verbs), a socket (lane/tcp), queue
//	         pairs through other nodes (lane/circuit)
//	Region   the user's memory, registered in every domain of a connection
//	Sink     the messages above, to which lanes tell all they have to tell
//	Owner    what holds the lanes, and ends the connection
//
// A lane over something else, as shared memory, is a package beside those
// that has a Port, a Domain and a Carrier; nothing above asks what kind a lane is of,
// but for package path, which chooses.
//
// # What goes over a lane
//
// The receiver grants buffers: entries of a ring that lies at the sender ([Grant]). The
// sender sends parts of a message into what was granted; the end of a part carries an
// immediate ([Imm]) that says what it was. A lane says when bytes were taken (Send
// returns) and, apart from that, when the peer has them (Sink.Delivered).
//
// # Threads
//
// Who calls a lane, a carrier or a domain holds the connection's mutex, except where a
// method says otherwise. What they tell the sink they tell from inside such a call, but
// for what [Owner] takes from anywhere. A lane's weight is decided by package path, and what
// it has of that by how fast it is ([Lane.Rate]); its state changes as [State] shows.
package lane
