package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"ncclmesh/printable"
)

// Schema names the form of the lines. An agent of another is not asked.
const Schema = "ncclmesh.agent/1"

// Limits of what an agent, or its asker, may send.
const (
	maxLine  = 4 << 20  // bytes
	maxTotal = 64 << 20 // bytes of one call, unless it says otherwise
	maxNoise = 64 << 10 // bytes that a login may print before the hello
)

// Hello is how an agent begins.
type Hello struct {
	Schema   string `json:"schema"`
	Build    string `json:"build"`
	Protocol int    `json:"protocol"` // that nodes of a mesh speak with each other, handshake.Version
}

// fromAgent is a line of an agent. One of its members is there.
type fromAgent struct {
	Hello  *Hello          `json:"hello,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
	End    *end            `json:"end,omitempty"`
}

type end struct {
	Error string `json:"error,omitempty"`
}

// fromAsker is a line of an asker. Do or Say is there.
type fromAsker struct {
	Do   string          `json:"do,omitempty"`
	With json.RawMessage `json:"with,omitempty"`
	Say  json.RawMessage `json:"say,omitempty"`
}

var errNotOne = errors.New("want an object with one of hello, answer and end")

// Limits of an agent's texts in bytes, which end up in one line of an error.
const (
	maxBuild = 64
	maxError = 2 << 10
)

// parseAgent reads a line of an agent. All texts in it come out printable, the answer's too.
func parseAgent(line []byte) (fromAgent, error) {
	var m fromAgent
	if err := json.Unmarshal(line, &m); err != nil {
		return fromAgent{}, err
	}
	n := 0
	for _, there := range []bool{m.Hello != nil, m.Answer != nil, m.End != nil} {
		if there {
			n++
		}
	}
	if n != 1 {
		return fromAgent{}, errNotOne
	}
	if m.Hello != nil {
		m.Hello.Build, m.Hello.Schema = printable.Line(m.Hello.Build, maxBuild), printable.Line(m.Hello.Schema, maxBuild)
	}
	if m.End != nil {
		m.End.Error = printable.Line(strings.ReplaceAll(m.End.Error, "\n", "; "), maxError) // errors that were joined
	}
	m.Answer = printableJSON(m.Answer)
	return m, nil
}

// printableJSON makes all strings of a JSON text printable, names of members too. Most texts have nothing to be changed.
func printableJSON(text json.RawMessage) json.RawMessage {
	var out []byte
	copied := 0 // of text
	for begin := bytes.IndexByte(text, '"'); begin >= 0; {
		end := begin + 1
		plain := true
		for ; text[end] != '"'; end++ {
			if text[end] == '\\' {
				end++
				plain = false
			}
			plain = plain && text[end] < 0x7f
		}
		end++
		var s string
		if !plain && json.Unmarshal(text[begin:end], &s) == nil {
			if line := printable.Line(s, len(s)); line != s {
				quoted, _ := json.Marshal(line) // which a string never fails
				out = append(append(out, text[copied:begin]...), quoted...)
				copied = end
			}
		}
		next := bytes.IndexByte(text[end:], '"')
		if next < 0 {
			break
		}
		begin = end + next
	}
	if out == nil {
		return text
	}
	return append(out, text[copied:]...)
}

// lines reads lines, which may be of maxLine bytes each, and of a limit together.
type lines struct {
	in          *bufio.Reader
	limit, left int
}

func newLines(r io.Reader, limit int) *lines {
	return &lines{bufio.NewReaderSize(r, 64<<10), limit, limit}
}

// next returns a line without its end. The last one need not have any. It is io.EOF when
// there is none, and ErrLimit when there is too much.
func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if l.left -= len(part); l.left < 0 {
			return nil, fmt.Errorf("%w: more than %d KiB", ErrLimit, l.limit>>10)
		}
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("%w: a line of more than %d MiB", ErrLimit, maxLine>>20)
		}
		line = append(line, part...)
		switch {
		case err == nil || err == io.EOF && len(line) > 0:
			return bytes.TrimRight(line, "\r\n"), nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

// hello reads the first line, and what a login prints before it (the message of the day,
// an echo of a shell's start-up file), which it passes over and returns when there is no hello.
func (l *lines) hello() (h Hello, noise []byte, err error) {
	for {
		line, err := l.next()
		if err != nil {
			return h, noise, err
		}
		if at := bytes.Index(line, []byte(`{"hello"`)); at >= 0 { // behind a prompt, which does not end its line
			m, err := parseAgent(line[at:])
			if err == nil && m.Hello == nil {
				err = errNotOne
			}
			if err != nil {
				return h, line, fmt.Errorf("%w: the hello cannot be read: %w", ErrGarbled, err)
			}
			return *m.Hello, nil, nil
		}
		if noise = append(append(noise, line...), '\n'); len(noise) > maxNoise {
			return h, noise[:maxNoise], fmt.Errorf("%w: %d KiB, and no hello among them", ErrLimit, maxNoise>>10)
		}
	}
}
