package mesh

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"ncclmesh/transport/onesided"
)

// A model is what a target should look like: the window of one side of an exchange into which the other side puts, and
// the words that the other side changes by signals. Both sides know it.
type model struct {
	key   uint64
	bytes []byte // the window
	gpu   bool   // it is GPU memory, where bytes of a put that is done may not be visible yet

	mu      sync.Mutex
	puts    []*placed // the latest, oldest first
	number  int       // of puts so far
	signals []onesided.Signal
	cleared []*placed // puts of which the program has seen and cleared the bytes
	applied int       // signals that were seen
	words   []uint64  // as the signals seen have made them
}

// A placed is a put, as both sides know it.
type placed struct {
	number   int
	from, to int // in the window
	signal   int // number of the first signal that was posted after it, from 0
	done     bool
	rivals   []*placed // that may have been on their way when it began, so that either may come last
	cleared  int       // number of the last put when its bytes were cleared, because the program has seen them; 0: they were not
}

// over reports whether a put may not write any more: it is done, or the program has seen a signal behind it.
func (m *model) over(p *placed) bool { return p.done && !m.gpu || p.signal < m.applied }

// kept is how many puts a model knows at a time, beside those that may still write.
const kept = 96

// byteOf is the byte that a put brings to an offset of the window.
func (m *model) byteOf(p *placed, offset int) byte {
	return byte(word(m.key, p.number, offset&^7) >> (8 * (offset & 7)))
}

// write writes what a put of a number brings to an offset of the window.
func (m *model) write(b []byte, number, offset int) {
	p := &placed{number: number}
	for i := 0; i < len(b); {
		if o := offset + i; o&7 == 0 && len(b)-i >= 8 {
			binary.LittleEndian.PutUint64(b[i:], word(m.key, number, o))
			i += 8
			continue
		}
		b[i] = m.byteOf(p, offset+i)
		i++
	}
}

// put notes a put that begins now, and returns its number.
func (m *model) put(offset, size int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	p := &placed{number: m.number, from: offset, to: offset + size, signal: len(m.signals)}
	for _, q := range m.puts {
		if p.meets(q) && !m.over(q) {
			p.rivals = append(p.rivals, q)
		}
	}
	m.puts = append(m.puts, p)
	if len(m.puts) > kept { // one that is lost with a lane may be sent again much later
		if i := slices.IndexFunc(m.puts, m.over); i >= 0 {
			m.puts = slices.Delete(m.puts, i, i+1)
		}
	}
	return m.number
}

// meets reports whether two puts write the same bytes.
func (p *placed) meets(q *placed) bool { return q.from < p.to && p.from < q.to }

// putDone notes that a put is done.
func (m *model) putDone(number int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.puts {
		if p.number == number {
			p.done = true
		}
	}
}

// signal notes a signal that begins now.
func (m *model) signal(s onesided.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signals = append(m.signals, s)
}

// see compares the words with what signals should have made of them, and all puts before the signals that are seen with
// the window. all says that all signals have been made, and all puts are done.
func (m *model) see(words []uint64, all bool) (moved bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !equal(words, m.words) {
		if m.applied == len(m.signals) {
			return moved, fmt.Errorf("the words are %x after %d signals, and should be %x at most", words, m.applied, m.words)
		}
		s := &m.signals[m.applied]
		switch w := &m.words[s.Offset/8]; s.Do {
		case onesided.SignalSet:
			*w = s.Value
		case onesided.SignalAdd:
			*w += s.Value
		case onesided.SignalInc:
			*w++
		}
		m.applied++
		moved = true
	}
	if !moved && !all {
		return false, nil
	}
	for _, p := range m.puts {
		if p.signal < m.applied || all {
			if err := m.check(p); err != nil {
				return moved, err
			}
		}
	}
	for _, p := range m.puts {
		if p.signal < m.applied && p.cleared == 0 && m.alone(p) { // the program uses the memory for something else
			clear(m.bytes[p.from:p.to])
			p.cleared = m.number
			m.cleared = append(m.cleared, p)
		}
	}
	return moved, nil
}

func equal(a, b []uint64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// alone reports whether no put that may still write touches the bytes of a put.
func (m *model) alone(p *placed) bool {
	for _, q := range m.puts {
		if p.meets(q) && q.signal >= m.applied {
			return false
		}
	}
	return true
}

// check compares the bytes of a put that must be there with the window. A put that was on its way too, or began later,
// may have written over them.
func (m *model) check(p *placed) error {
	var want [8]byte
	for o := p.from; o < p.to; {
		n := min(8-o&7, p.to-o)
		if p.cleared == 0 {
			binary.LittleEndian.PutUint64(want[:], word(m.key, p.number, o&^7))
		}
		for i := range n {
			if got := m.bytes[o+i]; got != want[(o+i)&7] && !m.others(p, o+i, got) {
				return fmt.Errorf("byte %d of the window is %#x, not %#x of put %d, %d bytes at %d before signal %d of %d, of which %d are seen%s",
					o+i, got, want[(o+i)&7], p.number, p.to-p.from, p.from, p.signal, len(m.signals), m.applied, m.whose(o+i))
			}
		}
		o += n
	}
	return nil
}

// others reports whether another put, or the program, may have written a byte that is where one of p should be.
func (m *model) others(p *placed, offset int, b byte) bool {
	may := func(q *placed) bool { return offset >= q.from && offset < q.to && m.byteOf(q, offset) == b }
	for _, q := range m.puts {
		if q.number > max(p.number, p.cleared) && may(q) {
			return true
		}
	}
	if b == 0 && slices.ContainsFunc(m.cleared, func(q *placed) bool { return q.cleared >= p.number && offset >= q.from && offset < q.to }) {
		return true
	}
	return p.cleared == 0 && slices.ContainsFunc(p.rivals, may)
}

// whose says which puts a byte may be of.
func (m *model) whose(offset int) (text string) {
	for _, q := range m.puts {
		if offset >= q.from && offset < q.to {
			text += fmt.Sprintf("; put %d, %d bytes at %d before signal %d, brings %#x (done %v, cleared at put %d)", q.number, q.to-q.from, q.from, q.signal, m.byteOf(q, offset), q.done, q.cleared)
		}
	}
	return text
}
