package stats

import (
	"structs"
	"sync/atomic"
)

// magic is the first word of every page. version is the version of the layout.
const (
	magic   = uint64('m') | 'e'<<8 | 's'<<16 | 'h'<<24 | 's'<<32 | 't'<<40 | 'a'<<48 | 't'<<56
	version = 1
)

// The capacity of each list.
const (
	maxPorts   = 64
	maxPaths   = 256
	maxConns   = 1024
	maxLanes   = 4096
	maxNotices = 32 // the latest ones
)

// The lists, by their index in the header's tables.
const (
	listPorts   = 0
	listPaths   = 1
	listConns   = 2
	listLanes   = 3
	listNotices = 4
	lists       = 5
)

// Texts of 64, 128 and 448 bytes.
type (
	text8  [8]atomic.Uint64
	text16 [16]atomic.Uint64
	text56 [56]atomic.Uint64
)

// page is the memory of a page. The size of every field is a multiple of 8 bytes, and that of every slot a
// multiple of 64, so that no two counters of different writers share a cache line.
type page struct {
	_       structs.HostLayout
	header  header
	relay   Relay
	ports   [maxPorts]port
	paths   [maxPaths]pathSlot
	conns   [maxConns]Conn
	lanes   [maxLanes]Lane
	notices [maxNotices]noticeSlot
}

// table describes a list.
type table struct {
	offset, slot atomic.Uint64 // bytes
	room, used   atomic.Uint64 // slots; used never decreases
}

type header struct {
	magic, version, size atomic.Uint64
	seq                  atomic.Uint64 // odd during a change of names or lists
	tables               [lists]table
	morePaths, moreConns atomic.Uint64 // entries without a slot
	moreLanes            atomic.Uint64
	notices              atomic.Uint64 // number of notices so far

	pid, started     atomic.Uint64 // started: nanoseconds since 1970
	protocol, vtable atomic.Uint64 // vtable: version of NCCL's interface, 0 while unknown
	kind             atomic.Uint64
	process          [2]atomic.Uint64
	_                [5]atomic.Uint64
	command, build   text8
	node             text8
}

// Relay counts the traffic that the process relays for other nodes. Any goroutine may add to its counters, except
// Device, whose one writer is the thread that forwards circuits over RDMA.
type Relay struct {
	_           structs.HostLayout
	Circuits    atomic.Uint64 // open circuits
	Carried     atomic.Uint64 // circuits that have been opened
	Failed      atomic.Uint64 // circuits that could not be opened
	Forth, Back atomic.Uint64 // bytes through sockets, from the requesting node and to it
	Device      Counter       // bytes through queue pairs
	_           [2]atomic.Uint64
}

type port struct {
	number, num     atomic.Uint64 // number in handshake messages; number on the device
	up, rdma        atomic.Uint64
	link, pci       atomic.Uint64 // Mb/s, 0 when unknown
	_               [2]atomic.Uint64
	device, netdev  text8
	cage, connector text8
	state           text8
}

type pathSlot struct {
	port, peerPort atomic.Uint64
	kind, tier     atomic.Uint64
	up             atomic.Uint64 // lanes in service
	down           atomic.Uint64 // start of the outage in nanoseconds since 1970; 0 if a lane is up or none failed
	lost           atomic.Uint64 // number of outages
	failures       atomic.Uint64 // failures of lanes
	outage         atomic.Uint64 // total length in nanoseconds of the outages that are over
	past           [2]Carried    // traffic of former lanes: received, sent
	_              atomic.Uint64
	peer           text8
	device, netdev text8 // the peer's
	route          text16
	_              [8]atomic.Uint64
}

// Carried counts the traffic of lanes.
type Carried struct {
	_      structs.HostLayout
	Bytes  Counter // sent or received
	Parts  Counter // of messages
	Resent Counter // bytes among those that were sent again
}

// Values of Conn.used.
const (
	shown   = 1 // the connection is on the page
	unshown = 2 // the page has no room for the connection, which is only counted
)

// Conn holds the counters of one half of a connection. Their writer is the goroutine that holds the
// connection's mutex.
type Conn struct {
	_        structs.HostLayout
	used     atomic.Uint64
	id       atomic.Uint64
	sending  atomic.Uint64
	Bytes    Counter // of complete messages
	Messages Counter
	Waits    Counter // messages that waited for a grant or for room
	Resent   Counter // bytes that were sent again
	Failures Counter // lanes that failed or were drained
	Outage   Counter // total time in nanoseconds from the failure of lanes until they or their replacements were up
	process  [2]atomic.Uint64
	place    atomic.Uint64 // 1 + index of its slot; 0: it has none
	_        [4]atomic.Uint64
	peer     text8
	_        [8]atomic.Uint64
}

// Lane holds the counters of one lane. Their writer is that of its connection.
type Lane struct {
	_ structs.HostLayout
	Carried
	path  atomic.Uint64 // 1 + index of its path; 0: none, or the slot is free
	conn  atomic.Uint64 // 1 + index of its connection's slot; 0: none
	index atomic.Uint64 // among the connection's lanes
	state atomic.Uint64
	since atomic.Uint64 // time of the last change of state, in nanoseconds since 1970
	place atomic.Uint64 // 1 + index of its slot; 0: it has none
	sends atomic.Uint64 // 1: a lane of a sender, 0: of a receiver
	_     [6]atomic.Uint64
}

// States of a lane.
const (
	laneUp   = 1
	laneDown = 2
)

type noticeSlot struct {
	number, at atomic.Uint64 // number from 1; nanoseconds since 1970
	_          [6]atomic.Uint64
	text       text56
}
