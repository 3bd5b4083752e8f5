package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// Whatever a host sends is lines, an error, or the end; what was read can be written and read again.
func FuzzAgentLines(f *testing.F) {
	f.Add([]byte(`{"hello":{"schema":"ncclmesh.agent/1","build":"1.0","protocol":4}}` + "\n" + `{"answer":{"a":[1]}}` + "\n" + `{"end":{}}`))
	f.Add([]byte("Welcome\n\n" + `{"hello":{}}` + "\r\n" + `{"end":{"error":"no port"}}` + "\n"))
	f.Add([]byte(`{"hello":null,"answer":null}`))
	f.Add([]byte(`{"answer":1,"answer":2,"end":null}`))
	f.Fuzz(func(t *testing.T, sent []byte) {
		from := newLines(bytes.NewReader(sent), maxTotal)
		_, _, err := from.hello()
		for n := 0; err == nil; n++ {
			if n > len(sent) {
				t.Fatal("more lines than bytes")
			}
			var line []byte
			if line, err = from.next(); err != nil {
				break
			}
			m, bad := parseAgent(line)
			if bad != nil {
				continue
			}
			text, bad := json.Marshal(m)
			if bad != nil {
				t.Fatalf("%q cannot be written: %v", line, bad)
			}
			if again, bad := parseAgent(text); bad != nil || !bytes.Equal(mustMarshal(t, again), text) {
				t.Fatalf("%q is read as %q, and that as %+v, %v", line, text, again, bad)
			}
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrLimit) && !errors.Is(err, ErrGarbled) {
			t.Fatal(err)
		}
	})
}

// Whatever is asked, an agent says hello and how it ended, and nothing else.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"do":"sum","with":{"A":1,"B":2}}`))
	f.Add([]byte(`{"do":"echo"}` + "\n" + `{"say":"x"}` + "\n" + `{"say":""}` + "\n"))
	f.Add([]byte(`{"do":"echo"}` + "\n" + `{"do":"sum"}` + "\n"))
	handlers := Handlers{"sum": testHandlers["sum"], "echo": testHandlers["echo"], "fail": testHandlers["fail"]}
	f.Fuzz(func(t *testing.T, asked []byte) {
		var out bytes.Buffer
		if err := Serve(context.Background(), bytes.NewReader(asked), &out, handlers); err != nil {
			t.Fatal(err)
		}
		from := newLines(&out, maxTotal)
		h, _, err := from.hello()
		if err != nil || h.Schema != Schema {
			t.Fatalf("%+v, %v", h, err)
		}
		for ended := false; ; {
			line, err := from.next()
			if err == io.EOF && ended {
				return
			}
			if err != nil || ended {
				t.Fatalf("%q, %v after the end: %v", line, err, ended)
			}
			m, err := parseAgent(line)
			if err != nil || m.Hello != nil {
				t.Fatalf("%q, %v", line, err)
			}
			ended = m.End != nil
		}
	})
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestClip(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"one\n\n  two \r\n", "one; two"},
		{"a\x1b[31mred\x1b[0m", "a?[31mred?[0m"},
		{strings.Repeat("a", 299) + "\nlast", "last"},
		{strings.Repeat("é", 200), strings.Repeat("é", 148) + "…"},
	}
	for _, tt := range tests {
		if got := clip([]byte(tt.in)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

// What begins as a hello and is none is told as what it is.
func TestNoHello(t *testing.T) {
	for text, want := range map[string]string{
		`{"hello":null,"answer":1}`: "answers what cannot be read: the hello cannot be read: " + errNotOne.Error(),
		`{"hello"`:                  "answers what cannot be read: the hello cannot be read: unexpected end of JSON input",
	} {
		if _, _, err := newLines(strings.NewReader(text), maxTotal).hello(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Lines have an end, or are refused.
func TestLineLimit(t *testing.T) {
	l := newLines(io.MultiReader(strings.NewReader(strings.Repeat("x", maxLine-1)), strings.NewReader("\n"), strings.NewReader(strings.Repeat("y", maxLine+1))), maxTotal)
	if line, err := l.next(); len(line) != maxLine-1 || err != nil {
		t.Errorf("%d bytes, %v", len(line), err)
	}
	if line, err := l.next(); !errors.Is(err, ErrLimit) {
		t.Errorf("%d bytes, %v", len(line), err)
	}
}
