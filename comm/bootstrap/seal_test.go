package bootstrap

import (
	"bytes"
	"errors"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// whose names a connection.
type whose string

func (w whose) String() string { return string(w) }

// A message opens with the secret and the number that it was sealed with, unchanged, and with nothing else.
func TestSeal(t *testing.T) {
	ours, theirs := newSeal(handshake.Secret{1}, nil), newSeal(handshake.Secret{2}, nil)
	message := []byte("the handle of a rank")
	sealed := ours.close(7, whose("a connection"), message)
	if bytes.Contains(sealed, message) {
		t.Error("the message can be read")
	}
	if got, err := ours.open(7, bytes.Clone(sealed)); err != nil || !bytes.Equal(got, message) {
		t.Errorf("%q, %v; want %q", got, err, message)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for _, tt := range []struct {
		name string
		seal *seal
		n    uint64
		b    []byte
	}{
		{"another secret", theirs, 7, sealed}, {"another number", ours, 8, sealed}, {"a changed byte", ours, 7, changed},
		{"an end that is missing", ours, 7, sealed[:len(sealed)-1]}, {"too few bytes", ours, 7, sealed[:28]}, {"nothing", ours, 7, nil},
	} {
		if got, err := tt.seal.open(tt.n, bytes.Clone(tt.b)); !errors.Is(err, fault.ErrProtocol) {
			t.Errorf("%s: %q, %v; want ErrProtocol", tt.name, got, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add((&join{rank: 1, size: 2}).encode())
	f.Add((&gather{number: 1, data: []byte("data")}).encode())
	f.Add((&failure{failedGone, "rank 1 is gone"}).encode(3))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if j, err := decodeJoin(b); err == nil && !bytes.Equal(j.encode(), b) && j.timeout.Hours() < 24*365 {
			t.Errorf("join %+v is not %x", j, b)
		}
		if len(b) == 0 {
			return
		}
		_, _ = decodeGather(b) // must not panic
		if _, err := decodeFailed(b); err == nil {
			t.Error("a failure without an error")
		}
		_, _ = numberOf(b)
	})
}
