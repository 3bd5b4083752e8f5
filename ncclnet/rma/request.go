package rma

import (
	"fmt"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
)

// A Request stands for an operation that was posted and whose end Test has not reported yet. 0 is none.
//
//	63    32 31  16 15   0
//	number   rank   index
type Request uint64

const (
	indexBits   = 16
	rankBits    = 16
	numberShift = indexBits + rankBits

	maxRequests = 1 << indexBits // of a link
)

func newRequest(number uint32, rank, index int) Request {
	return Request(number)<<numberShift | Request(rank)<<indexBits | Request(index)
}

func (q Request) number() uint32 { return uint32(q >> numberShift) }
func (q Request) rank() int      { return int(q >> indexBits & (1<<rankBits - 1)) }
func (q Request) index() int     { return int(q & (1<<indexBits - 1)) }

// verb is what an operation does.
type verb uint8

const (
	doPut     verb = 1 // put bytes, or change a word, or first one and then the other
	doGet     verb = 2 // get bytes
	doFlush   verb = 3 // wait for all operations to the rank that were posted before
	doNothing verb = 4
)

// operation is what a request asks for.
type operation struct {
	verb      verb
	source    *Window // of a put; of a get the window that the bytes go to; nil: no bytes
	sourceOff uint64
	size      uint64
	target    *Window // of the other rank's bytes
	targetOff uint64
	word      *Window // of the signal; nil: none
	signal    onesided.Signal
}

// requestState is the phase of a request's life.
//
//	             post             begin                Done                 Test
//	requestFree ─────► requestQueued ─────► requestBegun ─────► requestDone ─────► requestFree
//	                        │                                        ▲
//	                        └────────────── it cannot begin ─────────┘
type requestState uint8

const (
	requestFree   requestState = 0
	requestQueued requestState = 1 // in the link's queue
	requestBegun  requestState = 2 // an operation of the peer
	requestDone   requestState = 3
)

// request is a request of a link.
type request struct {
	state   requestState
	ignored bool     // its context was destroyed, so that nobody tests it
	number  uint32   // counts the uses, from 1
	next    int32    // of the queue, or of the list of free requests; none: the last
	context *Context // that posted it
	op      onesided.Op
	err     error
	operation
}

const none = -1

// Test reports whether a request is done, and why its operation failed if it did. After that the request does not exist any more.
func (g *Group) Test(q Request) (done bool, err error) {
	if err := g.usable(); err != nil {
		return false, err
	}
	if q.rank() >= len(g.links) {
		return false, errNoRequest(q)
	}
	l := &g.links[q.rank()]
	if done, err = l.test(q); done || err != nil || g.driven.Load() {
		return done, err
	}
	g.calls.Add(1)
	g.progress()
	return l.test(q)
}

func errNoRequest(q Request) error {
	return fmt.Errorf("%w: request %#x is done, or was never posted", fault.ErrUsage, uint64(q))
}
