package lab

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// A follower reads a growing file and passes its lines on.
type follower struct {
	file string
	line func(string) // may be nil

	f    *os.File
	all  strings.Builder
	rest []byte
}

// poll reads what was added.
func (f *follower) poll() {
	if f.f == nil {
		var err error
		if f.f, err = os.Open(f.file); err != nil {
			return // not there yet
		}
	}
	b, _ := io.ReadAll(f.f)
	f.all.Write(b)
	if f.line == nil {
		return
	}
	f.rest = append(f.rest, b...)
	for {
		line, rest, ok := bytes.Cut(f.rest, []byte("\n"))
		if !ok {
			return
		}
		f.line(strings.TrimSuffix(string(line), "\r"))
		f.rest = rest
	}
}

// end reads what is left and returns everything.
func (f *follower) end() string {
	f.poll()
	if f.f != nil {
		_ = f.f.Close()
	}
	if len(f.rest) > 0 && f.line != nil {
		f.line(string(f.rest))
	}
	return f.all.String()
}
