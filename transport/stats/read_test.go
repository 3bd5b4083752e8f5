package stats

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// If a process dies during a change its page cannot be read, and a reader gives up.
func TestTorn(t *testing.T) {
	t.Parallel()
	p := Private(somebody)
	p.change()
	if s, err := snapshot(wordsOf(p.page)); !errors.Is(err, ErrTorn) {
		t.Errorf("%+v, %v", s, err)
	}
}

// Reading a file that is no page returns one error that says so.
func TestNoPage(t *testing.T) {
	t.Parallel()
	memory := func(size int64, seals int) *os.File {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "test")
		t.Cleanup(func() { f.Close() })
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return f
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "page"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	tests := []struct {
		name string
		file *os.File
		want string
	}{
		{"a file", plain, "not sealed"},
		{"not sealed", memory(4096, unix.F_SEAL_GROW), "not sealed"},
		{"empty", memory(0, seals), "0 bytes"},
		{"huge", memory(maxPage+8, seals), "bytes"},
		{"odd", memory(4097, seals), "4097 bytes"},
		{"zeros", memory(8192, seals), "garbled, or not there yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if s, err := Read(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v; want %q", s, err, tt.want)
			}
		})
	}
}

// garble lists changes of single words that make a page invalid.
func TestGarbled(t *testing.T) {
	t.Parallel()
	p := Private(somebody)
	fill(p)
	good, err := copyPage(wordsOf(p.page))
	if err != nil {
		t.Fatal(err)
	}
	at := func(list, slot, word int) int {
		t := p.tables()[list]
		return int(t[0]+uint64(slot)*t[1])/8 + word
	}
	const huge = 1 << 63
	tests := []struct {
		name  string
		word  int
		value uint64
		want  string
	}{
		{"another beginning", wordMagic, 1, "begin with 0x1"},
		{"an older layout", wordLayout, 0, "by version 0, this command reads version 1"},
		{"a newer layout", wordLayout, 2, "by version 2"},
		{"another size", wordSize, 1, "say 1"},
		{"a list beyond the end", wordTables, uint64(len(good)), "list 0"},
		{"a list far beyond", wordTables + 4, huge, "list 1"},
		{"an odd list", wordTables + 8, 4, "list 2"},
		{"short slots", wordTables + 13, 8, "list 3"},
		{"no slots", wordTables + 13, 0, "list 3"},
		{"long slots", wordTables + 13, huge, "list 3"},
		{"many slots", wordTables + 18, huge, "list 4"},
		{"more in use than there are", wordTables + 19, maxNotices + 1, "list 4"},
		{"a process of no kind", wordWho + 4, 9, "kind 9"},
		{"a way of no kind", at(listPaths, 0, 2), 200, "path 0 is of carrier 200"},
		{"a lane over no way", at(listLanes, 1, 3), 3, "path 3 of 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := append([]byte(nil), good...)
			binary.LittleEndian.PutUint64(b[8*tt.word:], tt.value)
			s, err := parse(b)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v; want %q", s, err, tt.want)
			}
			var older *VersionError
			if errors.As(err, &older) != (tt.word == wordLayout) {
				t.Errorf("%T", err)
			}
		})
	}
}

// Control characters and bytes that are not UTF-8 are replaced in a text.
func TestTextIsOneLine(t *testing.T) {
	t.Parallel()
	p := Private(Process{Kind: Job, Command: "a\x1b[2J\nb\xff", Node: "\u202e"})
	s, err := snapshot(wordsOf(p.page))
	if err != nil || s.Process.Command != "a?[2J b?" || s.Process.Node != "?" {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	p := Private(somebody)
	fill(p)
	words := wordsOf(p.page)
	good, err := copyPage(words)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:headerSize+relaySize])
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parse(b); (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s, err)
		}
	})
}
