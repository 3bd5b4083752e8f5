package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/printable"
)

// Whatever a host sends is lines, an error, or the end; what was read can be written and read again.
func FuzzAgentLines(f *testing.F) {
	f.Add([]byte(`{"hello":{"schema":"ncclmesh.agent/1","build":"1.0","protocol":4}}` + "\n" + `{"answer":{"a":[1]}}` + "\n" + `{"end":{}}`))
	f.Add([]byte("Welcome\n\n" + `{"hello":{}}` + "\r\n" + `{"end":{"error":"no port"}}` + "\n"))
	f.Add([]byte(`{"hello":null,"answer":null}`))
	f.Add([]byte(`{"answer":1,"answer":2,"end":null}`))
	f.Add([]byte(`{"hello":{}}` + "\n" + `{"answer":{"a\u001b[2J":["\n","\\\"","` + "\u009b\u202e" + `"]}}` + "\n" + `{"end":{"error":"a\nb"}}`))
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
			checkPrintable(t, m)
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
		`{"hello":null,"answer":1}`: "sent an answer that cannot be read: the hello cannot be read: " + errNotOne.Error(),
		`{"hello"`:                  "sent an answer that cannot be read: the hello cannot be read: unexpected end of JSON input",
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

// checkPrintable fails the test where a text in what an agent has said is not printable.
func checkPrintable(t *testing.T, m fromAgent) {
	t.Helper()
	check := func(s string) {
		if line := printable.Line(s, len(s)); line != s {
			t.Errorf("%q is not printable", s)
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			check(v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				check(k)
				walk(e)
			}
		}
	}
	if m.Hello != nil {
		check(m.Hello.Build)
		check(m.Hello.Schema)
	}
	if m.End != nil {
		check(m.End.Error)
	}
	if m.Answer != nil {
		var v any
		if err := json.Unmarshal(m.Answer, &v); err != nil {
			t.Fatalf("%q: %v", m.Answer, err)
		}
		walk(v)
	}
}

// Whatever an agent says, none of it moves the cursor, begins a line or turns text around.
func TestParseAgentPrintable(t *testing.T) {
	tests := []struct{ name, line, want string }{
		{"an answer", `{"answer":{"netdev":"eth\u001b[2J0","n":1.50}}`, `{"answer":{"netdev":"eth?[2J0","n":1.50}}`},
		{"the name of a member", `{"answer":{"a\nb":"c"}}`, `{"answer":{"a b":"c"}}`},
		{"raw", "{\"answer\":[\"\u009b2J\",\"\u202ekcab\",\"Größe\"]}", `{"answer":["?2J","?kcab","Größe"]}`},
		{"escapes that stay", `{"answer":["\\","\"","\\\"","\u00e9",""]}`, `{"answer":["\\","\"","\\\"","\u00e9",""]}`},
		{"bytes", `{"answer":"AAECG1s="}`, `{"answer":"AAECG1s="}`},
		{"no string", `{"answer":[1,null]}`, `{"answer":[1,null]}`},
		{"an error", `{"end":{"error":"no port\nnode-b: fine\u001b[1A"}}`, `{"end":{"error":"no port; node-b: fine?[1A"}}`},
		{"a long error", `{"end":{"error":"` + strings.Repeat("x", maxError+1) + `"}}`, `{"end":{"error":"` + strings.Repeat("x", maxError-3) + `…"}}`},
		{"a build", `{"hello":{"schema":"\r","build":"1\u001b[2J","protocol":4}}`, `{"hello":{"schema":" ","build":"1?[2J","protocol":4}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := parseAgent([]byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(mustMarshal(t, m))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			checkPrintable(t, m)
		})
	}
}

func TestCheckHosts(t *testing.T) {
	for host, fine := range map[string]bool{"node-a": true, "user@fd00::1": true, "größe": true, "": false, "a b": false, "-x": false, "a\x1b": false, "a\u009b": false, "a\u202e": false, "a\xff": false} {
		if err := Check([]string{host}); (err == nil) != fine {
			t.Errorf("%q: %v", host, err)
		} else if err != nil && printable.Line(err.Error(), 1<<10) != err.Error() {
			t.Errorf("%q is refused with %q", host, err)
		}
	}
}
