package handshake

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBuildField(t *testing.T) {
	tests := []struct{ name, want string }{
		{"1.0-dev+gce2bce7", "1.0-dev+gce2bce7"},
		{"1.0-dev+gce2bce7-dirty", "1.0-dev+gce2bce7-dirty"},
		{"a name that is longer than the field", "a?name?that?is?longer?th"},
		{"caf\u00e9", "caf??"},
	}
	for _, tt := range tests {
		if got := buildText(buildField(tt.name)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What is said before two sides know each other's version names the build, in all versions from the second on.
func TestAnotherVersionNamesItsBuild(t *testing.T) {
	_, challenge := NewListener(ProcessID{}, nil)
	d, err := NewDialler(ProcessID{}, challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := d.SayHello(nil, testHello())
	if err != nil {
		t.Fatal(err)
	}
	old := unhex(t, "4e4d 01 81 00000030 101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f")
	later := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[2], b[3] = 11, 0xee // of a type that is not known today
		copy(b[setupHeader:], "9.9+gfeed\x00\x00\x00\x00")
		return b
	}
	const both = "protocol version 11 (build 9.9+gfeed), this side speaks version 10 (build 1.0-dev)"
	tests := []struct {
		name string
		read func(io.Reader) ([]byte, error)
		in   []byte
		want string
	}{
		{"challenge", ReadChallenge, later(challenge), both},
		{"hello", ReadHello, later(hello), both},
		{"reject", ReadHello, later(Reject(RejectVersion)), both},
		{"reject for a welcome", ReadWelcome, later(Reject(RejectVersion)), both},
		{"version 1", ReadChallenge, old, "protocol version 1 (an older build), this side"},
		{"no build", ReadChallenge, later(challenge)[:20], "protocol version 11 (an unknown build), this side"},
	}
	for _, tt := range tests {
		_, err := tt.read(bytes.NewReader(tt.in))
		var version *VersionError
		if !errors.As(err, &version) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
