package internet

import (
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// patience is how long an end goes on with another that does not answer. It is guarded by the internet's mutex.
type patience struct {
	idle, interval, silence time.Duration
	questions               int // 0: none are asked
	heard                   time.Duration
	keep                    alarm
}

// setPatience takes over what a program wants, as precisely as a kernel does.
func (e *end) setPatience(p sock.Patience) {
	seconds := func(d time.Duration) time.Duration {
		return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
	}
	e.idle, e.interval, e.questions = seconds(p.Idle), seconds(p.Interval), p.Count
	e.silence = (p.Silence + time.Millisecond - 1).Truncate(time.Millisecond)
	if e.state == stateOpen {
		e.keep.set(e, e.idle, "has been idle", e.idled)
	}
}

// idled asks the other end for a sign of life, if nothing was heard of it for long enough.
func (e *end) idled() {
	if e.state != stateOpen || e.questions == 0 {
		return
	}
	quiet := e.now() - e.heard
	again := e.interval
	switch {
	case len(e.flights) > 0 || e.waits():
		again = e.idle
	case quiet < e.idle:
		again = e.idle - quiet
	case e.silence > 0 && quiet >= e.silence && e.probes > 0, e.silence == 0 && e.probes >= e.questions:
		_ = e.emit(&segment{rst: true})
		e.timedOut()
		return
	default:
		e.probes++
		if errno := e.emit(&segment{ack: true, probe: true, seq: e.nxt}); errno != 0 {
			e.soft = unix.EHOSTUNREACH
		}
	}
	e.keep.set(e, again, "has been idle", e.idled)
}

// info is what the kernel knows of the other end.
func (e *end) info() sock.Info {
	return sock.Info{
		Waiting: len(e.flights) > 0 || e.waits() || e.left > 0,
		LastAck: (e.now() - e.answered).Truncate(time.Millisecond),
		Lost:    uint8(min(max(e.tries, e.probes), 255)),
	}
}
