package stats

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"ncclmesh/printable"

	"golang.org/x/sys/unix"
)

// The largest page that is read, and how often a read is repeated while the page changes.
const (
	maxPage    = 64 << 20
	maxTries   = 200
	retryPause = time.Millisecond
)

// ErrTorn says that a page was being changed at each attempt to read it, because its process died or was
// stopped during a change.
var ErrTorn = errors.New("its names were being written at each look: the process died, or was stopped, while it wrote them")

// VersionError says that a page has another version of the layout.
type VersionError struct{ Theirs uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("its counters are laid out by version %d, this command reads version %d: use the command of the plugin's build", e.Theirs, version)
}

// Read reads the page that a descriptor refers to. It returns an error if the file is not a page; it does not
// trust the contents.
func Read(f *os.File) (*Snapshot, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var s *Snapshot
	if e := rc.Control(func(fd uintptr) { s, err = readFile(int(fd)) }); e != nil {
		return nil, e
	}
	return s, err
}

func readFile(fd int) (*Snapshot, error) {
	// Without F_SEAL_SHRINK the file could shrink while it is mapped, and a read would raise SIGBUS. The seals are checked
	// first, because only a memfd has any, and other calls may block on a file of a file system that does not answer.
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || got&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("its counters are not a page: they are not sealed (%#x, %v)", got, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at its counters: %w", err)
	}
	if st.Size < headerSize || st.Size > maxPage || st.Size%8 != 0 {
		return nil, fmt.Errorf("its counters are not a page: %d bytes", st.Size)
	}
	words, unmap, err := mapped(fd, int(st.Size))
	if err != nil {
		return nil, fmt.Errorf("map its counters: %w", err)
	}
	defer unmap()
	return snapshot(words)
}

// snapshot copies and decodes a page, and repeats the copy until no change happened during it.
func snapshot(words []atomic.Uint64) (*Snapshot, error) {
	var s *Snapshot
	err := ErrTorn
	for range maxTries {
		if before := words[wordSeq].Load(); before%2 == 0 {
			var taken []byte
			taken, err = copyPage(words)
			if words[wordSeq].Load() == before {
				if err != nil {
					return nil, err
				}
				if s, err = parse(taken); err != nil {
					return nil, err
				}
				s.At = time.Now()
				return s, nil
			}
			err = ErrTorn
		}
		time.Sleep(retryPause)
	}
	return nil, err
}

// Indices of the words in the header, and sizes in bytes.
const (
	headerSize = 512
	wordMagic  = 0
	wordLayout = 1
	wordSize   = 2
	wordSeq    = 3
	wordTables = 4
	wordMore   = wordTables + 4*lists
	wordWho    = wordMore + 4
	wordTexts  = 40
	relaySize  = 64
)

// copyPage returns a copy of the page, with zeros for slots that were never used. It does not read those,
// because the kernel would allocate memory for them.
func copyPage(words []atomic.Uint64) ([]byte, error) {
	to := make([]byte, 8*len(words))
	take := func(from, n int) {
		for i := from; i < from+n; i++ {
			binary.LittleEndian.PutUint64(to[8*i:], words[i].Load())
		}
	}
	take(0, (headerSize+relaySize)/8)
	lists, err := tablesOf(to)
	if err != nil {
		return nil, err
	}
	for _, t := range lists {
		take(t.offset/8, t.used*t.slot/8)
	}
	return to, nil
}

// listed is the position of a list in bytes, and the number of slots that have been used.
type listed struct{ offset, slot, used int }

// minSlot holds the least size of a slot of each list. Newer pages may have larger slots.
var minSlot = [lists]int{listPorts: 384, listPaths: 512, listConns: 256, listLanes: 128, listNotices: 512}

// tablesOf checks a page's header and returns its lists.
func tablesOf(b []byte) (all [lists]listed, err error) {
	if len(b) < headerSize+relaySize {
		return all, fmt.Errorf("its counters are garbled: %d bytes", len(b))
	}
	w := cells(b)
	switch {
	case w.u(wordMagic) != magic:
		return all, fmt.Errorf("its counters are garbled, or not there yet: they begin with %#x", w.u(wordMagic))
	case w.u(wordLayout) != version:
		return all, &VersionError{w.u(wordLayout)}
	case w.u(wordSize) != uint64(len(b)):
		return all, fmt.Errorf("its counters are garbled: %d bytes, and they say %d", len(b), w.u(wordSize))
	}
	for i := range all {
		t := w[8*(wordTables+4*i):]
		offset, slot, room, used := t.u(0), t.u(1), t.u(2), t.u(3)
		size := uint64(len(b))
		if offset%8 != 0 || slot%8 != 0 || offset > size || slot < uint64(minSlot[i]) || slot > size || room > size/slot || used > room || room*slot > size-offset {
			return all, fmt.Errorf("its counters are garbled: list %d lies at %d, %d of %d slots of %d bytes, in %d", i, offset, used, room, slot, size)
		}
		all[i] = listed{int(offset), int(slot), int(used)}
	}
	return all, nil
}

// cells is a sequence of bytes that is read as 64-bit words.
type cells []byte

func (c cells) u(i int) uint64 { return binary.LittleEndian.Uint64(c[8*i:]) }

// text returns the text in the given number of words from word i on, as one printable line.
func (c cells) text(i, words int) string {
	b := c[8*i : 8*(i+words)]
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return printable.Line(string(b), len(b))
}

func (c cells) id(i int) [16]byte { return [16]byte(c[8*i:]) }

// in returns word i, limited to most.
func (c cells) in(i, most int) int { return int(min(c.u(i), uint64(most))) }

func (c cells) time(i int) time.Time {
	if n := c.u(i); n > 0 {
		return time.Unix(0, int64(min(n, math.MaxInt64)))
	}
	return time.Time{}
}

func (c cells) duration(i int) time.Duration { return time.Duration(min(c.u(i), math.MaxInt64)) }

func (c cells) volume(i int) Volume { return Volume{c.u(i), c.u(i + 1), c.u(i + 2)} }

// parse decodes the bytes of a page. It checks every value, because the page may come from a faulty process.
func parse(b []byte) (*Snapshot, error) {
	lists, err := tablesOf(b)
	if err != nil {
		return nil, err
	}
	w, s := cells(b), &Snapshot{}
	process, texts := w[8*wordWho:], w[8*wordTexts:]
	s.Process = Process{
		PID: process.in(0, math.MaxInt32), Started: process.time(1), Protocol: process.in(2, math.MaxInt32), Kind: Kind(process.in(4, math.MaxUint8)),
		ID: process.id(5), Command: texts.text(0, 8), Build: texts.text(8, 8), Node: texts.text(16, 8),
	}
	if k := s.Process.Kind; k < 1 || k > knownKinds {
		return nil, fmt.Errorf("its counters are garbled: the process is of %v", k)
	}
	s.Vtable = process.in(3, math.MaxInt32)
	s.MorePaths, s.MoreConns, s.MoreLanes = w.u(wordMore) > 0, w.u(wordMore+1), w.u(wordMore+2)
	r := w[headerSize:]
	s.Relay = RelayCounts{Circuits: r.u(0), Carried: r.u(1), Failed: r.u(2), Bytes: r.u(3) + r.u(4) + r.u(5)}
	slots := func(list int, f func(i int, c cells) error) {
		t := lists[list]
		for i := 0; i < t.used && err == nil; i++ {
			err = f(i, w[t.offset+i*t.slot:][:t.slot])
		}
	}
	slots(listPorts, s.port)
	slots(listPaths, s.path)
	conns := map[uint64]int{}
	slots(listConns, func(i int, c cells) error { return s.conn(uint64(i)+1, c, conns) })
	slots(listLanes, func(_ int, c cells) error { return s.lane(c, conns) })
	slots(listNotices, s.notice)
	if err != nil {
		return nil, fmt.Errorf("its counters are garbled: %w", err)
	}
	s.sortNotices()
	return s, nil
}
