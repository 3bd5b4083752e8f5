package internet

import (
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A sender is the half of an end that sends. It is guarded by the internet's mutex.
type sender struct {
	space    int    // bytes that the buffer has room for
	out      []byte // from una on
	una, nxt uint64 // the first number that is not acknowledged, and that was not sent
	fin      bool   // nothing more is written: the end of the stream follows
	finAcked bool
	last     bool   // the other end had finished before
	window   uint64 // so far the other end takes bytes
	flights  []flight
	left     int // bytes that were not acknowledged when the stream broke
	pace     int // segments that may be on their way at once

	resend   alarm
	tries    int           // repeats in a row that were not acknowledged
	first    time.Duration // when the first of them was sent
	probes   int           // questions in a row that were not answered
	asked    time.Duration // when the first of them was sent, of those for a window
	asking   bool
	pause    time.Duration // until the next repeat
	srtt     time.Duration // 0: nothing was measured
	rttvar   time.Duration
	answered time.Duration // when the other end acknowledged last
}

// A flight is a stretch that was sent and is not acknowledged.
type flight struct {
	span
	fin       bool
	at        time.Duration // when it was sent last
	times     int
	has, lost bool // the other end has it, or not
}

const (
	maxSegment  = 64 << 10
	minSegment  = 1448 // a window that is smaller is not used
	cuts        = 1.0 / 16
	firstPause  = time.Second // before anything was measured
	minPause    = 200 * time.Millisecond
	maxPause    = 2 * time.Minute
	callTries   = 6 // net.ipv4.tcp_syn_retries
	answerTries = 5 // net.ipv4.tcp_synack_retries
	dataTries   = 15
	orphanTries = 8
	unpaced     = math.MaxInt
)

func (s *sender) begin(space int) { s.space, s.pace, s.pause = space, unpaced, firstPause }

// put takes bytes over from a program, as many as there is room for.
func (e *end) put(b []byte) int {
	n := min(len(b), e.space-len(e.out))
	if n <= 0 {
		return 0
	}
	e.out = append(e.out, b[:n]...)
	e.wantStep()
	return n
}

// unsent is what the other end has not acknowledged.
func (e *end) unsent() int { return max(len(e.out), e.left) }

// emit sends a segment with what the receiving half has to say.
func (e *end) emit(s *segment) unix.Errno {
	s.sender, s.receiver, s.from, s.to = e, e.peer, bare(e.local), bare(e.remote)
	if !s.rst {
		s.acked, s.limit, s.have = e.rcv, e.edge, e.spans()
		e.windowDue = false
	}
	return e.net().carry(s, e.host, passage{source: e.source, what: e.name + " " + s.String(), order: &e.order, hops: e.hops, on: e.on, failed: e.unreachable})
}

// unreachable hears that nobody has the address of the other end.
func (e *end) unreachable() {
	switch e.state {
	case stateCalling:
		e.broken(unix.EHOSTUNREACH)
	case stateOpen:
		e.soft = unix.EHOSTUNREACH
	}
}

// waits reports whether there is something to send that was not sent.
func (e *end) waits() bool { return e.nxt-e.una < uint64(len(e.out)) || e.fin && !e.finSent() }

func (e *end) finSent() bool { return e.finAcked || e.nxt-e.una > uint64(len(e.out)) }

// outstanding is how many segments may be on their way.
func (e *end) outstanding() (n int) {
	for i := range e.flights {
		if !e.flights[i].has && !e.flights[i].lost {
			n++
		}
	}
	return n
}

// transmit sends what was lost, then what is new, as far as the window goes.
func (e *end) transmit() {
	if e.state != stateOpen {
		return
	}
	free := e.pace - e.outstanding()
	for i := range e.flights {
		if f := &e.flights[i]; f.lost && !f.has && free > 0 {
			if e.send(f) != 0 {
				break
			}
			free--
		}
	}
	for ; free > 0 && e.waits(); free-- {
		f, ok := e.next()
		if !ok || e.send(&f) != 0 {
			break
		}
		e.flights = append(e.flights, f)
		e.nxt = f.to
	}
	e.await()
}

// next is the next stretch to send, if the window lets it pass.
func (e *end) next() (f flight, ok bool) {
	begun := e.nxt - e.una
	left := uint64(len(e.out)) - begun
	room := e.window - min(e.window, e.nxt)
	n := min(left, room, maxSegment)
	if n < left && n < minSegment && (n == room && len(e.flights) > 0 || n == 0) {
		return f, false
	}
	if e.source.Chance(cuts) && n > 1 {
		n = uint64(e.source.LogUniform(1, int(n)))
	}
	f = flight{span: span{e.nxt, e.nxt + n}}
	if e.fin && n == left && room > n {
		f.fin = true
		f.to++
	}
	return f, f.to > f.from
}

// send sends a stretch, for the first time or again.
func (e *end) send(f *flight) unix.Errno {
	from, to := f.from-e.una, f.to-e.una
	if f.fin {
		to--
	}
	errno := e.emit(&segment{ack: true, fin: f.fin, seq: f.from, data: e.out[from:to:to]})
	if errno != 0 {
		e.soft = unix.EHOSTUNREACH
		return errno
	}
	f.at, f.lost = e.now(), false
	if f.times++; f.times > 1 {
		e.net().count("sent again")
	} else if f.fin {
		e.last = e.ended
	}
	return 0
}

// await sets the alarm for what is not acknowledged, or for a window that stays shut, unless it is set.
func (e *end) await() {
	switch {
	case len(e.flights) == 0 && !e.waits():
		e.resend.f = nil
	case e.resend.f == nil:
		e.resend.set(e, e.pause, "waits in vain", e.waited)
	}
}

// waited is called when nothing was acknowledged for a while.
func (e *end) waited() {
	if e.state != stateOpen {
		return
	}
	now := e.now()
	if len(e.flights) == 0 {
		e.probe(now)
		return
	}
	if e.tries++; e.tries == 1 {
		e.first = now
	}
	if e.silence > 0 && now-e.first >= e.silence || e.silence == 0 && e.tries > dataTries || e.refs == 0 && e.tries > orphanTries {
		e.timedOut()
		return
	}
	for i := range e.flights {
		e.flights[i].lost = !e.flights[i].has
	}
	e.pace = 1
	e.later(e.first, now)
	e.transmit()
}

// probe asks whether the window is open, or whether there is a way again.
func (e *end) probe(now time.Duration) {
	if !e.asking {
		e.asking, e.asked = true, now
	}
	if e.silence > 0 && now-e.asked >= e.silence || e.probes >= dataTries || e.refs == 0 && e.probes >= orphanTries {
		e.timedOut()
		return
	}
	e.later(e.asked, now)
	e.transmit()
	if len(e.flights) > 0 {
		return
	}
	e.probes++
	_ = e.emit(&segment{ack: true, probe: true, seq: e.una})
}

// later doubles the pause until the next try. The last one ends when the patience does.
func (e *end) later(since, now time.Duration) {
	e.pause = min(2*e.pause, maxPause)
	d := e.pause
	if e.silence > 0 {
		d = min(d, since+e.silence-now)
	}
	e.resend.set(e, d, "waits in vain", e.waited)
}

// timedOut ends the stream because the other end does not answer.
func (e *end) timedOut() {
	e.net().count("timed out")
	errno := e.soft
	if errno == 0 {
		errno = unix.ETIMEDOUT
	}
	e.broken(errno)
}

// heardAck takes down what the other end has.
func (e *end) heardAck(s *segment) {
	now := e.now()
	e.answered, e.probes = now, 0
	progress := s.acked > e.una && s.acked <= e.nxt
	if progress {
		e.advance(s.acked, now)
	}
	newest := time.Duration(-1)
	for i := range e.flights {
		f := &e.flights[i]
		f.has = f.has || slices.ContainsFunc(s.have, func(h span) bool { return h.from <= f.from && f.to <= h.to })
		if f.has {
			newest = max(newest, f.at)
		}
	}
	for i := range e.flights { // the segments of a stream arrive in order
		if f := &e.flights[i]; !f.has && !f.lost && f.at < newest {
			f.lost = true
		}
	}
	if s.limit > e.window {
		e.window = s.limit
		e.asking = false
	}
	e.transmit()
	if progress {
		e.settle()
	}
}

// advance forgets what is acknowledged.
func (e *end) advance(acked uint64, now time.Duration) {
	n := 0
	for n < len(e.flights) && e.flights[n].to <= acked {
		if f := &e.flights[n]; f.times == 1 {
			e.measure(now - f.at)
		}
		if e.flights[n].fin {
			e.finAcked = true
			acked--
		}
		n++
	}
	e.flights = slices.Delete(e.flights, 0, n)
	e.out = e.out[acked-e.una:]
	if len(e.out) == 0 {
		e.out = nil
	}
	e.una = acked
	if e.finAcked {
		e.una++
	}
	if e.pace != unpaced {
		if e.pace += n; e.pace > 64 {
			e.pace = unpaced
		}
	}
	e.tries, e.soft = 0, 0
	e.pause = e.usual()
	e.resend.f = nil
	if 3*len(e.out) <= 2*e.space {
		e.writable.Broadcast()
		e.process.tell()
	}
}

// measure takes a time from sending to the acknowledgement into account.
func (e *end) measure(rtt time.Duration) {
	if e.srtt == 0 {
		e.srtt, e.rttvar = rtt, rtt/2
		return
	}
	e.rttvar += (max(e.srtt-rtt, rtt-e.srtt) - e.rttvar) / 4
	e.srtt += (rtt - e.srtt) / 8
}

// usual is the pause before the first repeat.
func (e *end) usual() time.Duration {
	if e.srtt == 0 {
		return firstPause
	}
	return min(e.srtt+max(4*e.rttvar, minPause), maxPause)
}
