package bus

import (
	"time"
	_ "unsafe" // for linkname
)

// realTime is the time of the machine, which that of a bubble is not. It is asked for twice per event: a call of the system would be most of
// what a simulation costs, on machines where those are slow.
func realTime() time.Duration { return time.Duration(nanotime()) }

//go:linkname nanotime runtime.nanotime
func nanotime() int64
