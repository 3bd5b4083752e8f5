package conformance

import (
	"slices"

	"ncclmesh/ibv"
)

// A row is one thing that verbs do.
type row struct {
	name  string
	run   func(w *world)
	timed bool // what comes of it hangs on how long something takes: it is for the model alone
}

// rows are all of them.
var rows = slices.Concat(dataRows, stateRows, eceRows, dataDirectRows, errorRows, faultRows, eventRows, gpuRows)

// both are an end and its peer, closed when f has returned.
func both(w *world, f func(a, b *end), wishes ...wish) {
	w.Helper()
	a, b := ends(w, wishes...)
	f(a, b)
	a.close()
	b.close()
}

// on makes a row of what happens between two ends.
func on(name string, f func(a, b *end), wishes ...wish) row {
	return row{name: name, run: func(w *world) { both(w, f, wishes...) }}
}

// inTime makes a row one for the model alone.
func (r row) inTime() row {
	r.timed = true
	return r
}

const (
	opWrite    = ibv.IBV_WR_RDMA_WRITE
	opWriteImm = ibv.IBV_WR_RDMA_WRITE_WITH_IMM
	opSend     = ibv.IBV_WR_SEND
	opSendImm  = ibv.IBV_WR_SEND_WITH_IMM
	opRead     = ibv.IBV_WR_RDMA_READ

	ok       = ibv.IBV_WC_SUCCESS
	flushed  = ibv.IBV_WC_WR_FLUSH_ERR
	signaled = ibv.IBV_SEND_SIGNALED
)
