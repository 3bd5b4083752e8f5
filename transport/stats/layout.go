package stats

import (
	"structs"
	"sync/atomic"
)

// magic begins every page, and version says how the rest is laid out.
const (
	magic   = uint64('m') | 'e'<<8 | 's'<<16 | 'h'<<24 | 's'<<32 | 't'<<40 | 'a'<<48 | 't'<<56
	version = 1
)

// How much there can be of everything on a page.
const (
	maxPorts   = 64
	maxPaths   = 256
	maxConns   = 1024
	maxLanes   = 4096
	maxNotices = 32 // the last ones
)

// The lists, in the order of the header's tables.
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

// page is the whole of it. Every field is a multiple of 8 bytes, and every slot one of 64: no two counters of different
// writers share a cache line.
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

// table is where a list lies.
type table struct {
	offset, slot atomic.Uint64 // bytes
	room, used   atomic.Uint64 // slots; used only grows
}

type header struct {
	magic, version, size atomic.Uint64
	seq                  atomic.Uint64 // odd while names or lists change
	tables               [lists]table
	morePaths, moreConns atomic.Uint64 // that there are, and no room is for
	moreLanes            atomic.Uint64
	notices              atomic.Uint64 // words so far

	pid, started     atomic.Uint64 // started: nanoseconds since 1970
	protocol, vtable atomic.Uint64 // vtable: version of NCCL's, 0 while it is not known
	kind             atomic.Uint64
	process          [2]atomic.Uint64
	_                [5]atomic.Uint64
	command, build   text8
	node             text8
}

// Relay is what the process carries for others. Its counters may be added to by any goroutine.
type Relay struct {
	_           structs.HostLayout
	Circuits    atomic.Uint64 // that stand
	Carried     atomic.Uint64 // that have stood
	Failed      atomic.Uint64 // that could not be made
	Forth, Back atomic.Uint64 // bytes of sockets, from the asker and to it
	Device      Counter       // bytes of queue pairs
	_           [2]atomic.Uint64
}

type port struct {
	number, num     atomic.Uint64 // as peers know it; of the device
	up, rdma        atomic.Uint64
	link, pci       atomic.Uint64 // Mb/s, 0 when not known
	_               [2]atomic.Uint64
	device, netdev  text8
	cage, connector text8
	state           text8
}

type pathSlot struct {
	port, peerPort atomic.Uint64
	kind, tier     atomic.Uint64
	up             atomic.Uint64 // lanes in service
	down           atomic.Uint64 // since when none is that had been: nanoseconds since 1970, 0 while one is
	lost           atomic.Uint64 // times that happened
	failures       atomic.Uint64 // of lanes
	outage         atomic.Uint64 // nanoseconds without a lane, until one came back
	past           [2]Carried    // of lanes that are no more: received, sent
	_              atomic.Uint64
	peer           text8
	device, netdev text8 // the peer's
	route          text16
	_              [8]atomic.Uint64
}

// Carried is what lanes have carried.
type Carried struct {
	_      structs.HostLayout
	Bytes  Counter // sent, or arrived
	Parts  Counter // of messages
	Resent Counter // bytes among those sent that were sent before
}

// What is in a connection's slot.
const (
	shown   = 1
	unshown = 2 // of none: it is counted only
)

// Conn is one half of a connection. Its counters are its owner's, whoever holds the connection's mutex.
type Conn struct {
	_        structs.HostLayout
	used     atomic.Uint64
	id       atomic.Uint64
	sending  atomic.Uint64
	Bytes    Counter // of whole messages
	Messages Counter
	Waits    Counter // messages that waited: for a grant, or for room
	Resent   Counter // bytes sent again
	Failures Counter // lanes that failed, or were needed no more
	Outage   Counter // nanoseconds that lanes were away until they came back, or others took their places
	process  [2]atomic.Uint64
	place    atomic.Uint64 // 1 and its index; 0: it is not on the page
	_        [4]atomic.Uint64
	peer     text8
	_        [8]atomic.Uint64
}

// Lane is one lane of a connection. Its counters are the connection's owner's.
type Lane struct {
	_ structs.HostLayout
	Carried
	path  atomic.Uint64 // 1 and its index; 0: the slot is free
	conn  atomic.Uint64 // likewise
	index atomic.Uint64 // among the connection's lanes
	state atomic.Uint64
	since atomic.Uint64 // nanoseconds since 1970, of the state
	place atomic.Uint64 // as Conn's
	sends atomic.Uint64 // 1: of a sender
	_     [6]atomic.Uint64
}

// States of a lane.
const (
	laneUp   = 1
	laneDown = 2
)

type noticeSlot struct {
	number, at atomic.Uint64 // from 1; nanoseconds since 1970
	_          [6]atomic.Uint64
	text       text56
}
