package sockets

import "slices"

// A row is one thing that sockets do.
type row struct {
	name  string
	run   func(w *world)
	alone bool // on the kernel it hangs on what the process does besides
}

// rows are all of them.
var rows = slices.Concat(dialRows, listenRows, portRows, streamRows, endRows, laneRows, silenceRows, datagramRows)

// on makes a row of what happens between the two ends of a stream, which are closed when f has returned.
func on(name string, f func(w *world, a, b conn)) row {
	return row{name: name, run: func(w *world) {
		a, b := joined(w)
		f(w, a, b)
		_, _ = a.Close(), b.Close()
	}}
}
