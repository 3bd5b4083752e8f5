package meet

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Schema names the form of what is said before a question.
const Schema = "ncclmesh.meet/1"

// maxLine is how long a line before a question may be.
const maxLine = 4 << 10

// welcome is what rank 0 says to whoever comes.
type welcome struct {
	Meet  string `json:"meet"`
	Nonce []byte `json:"nonce"`
}

// arrival is who has come.
type arrival struct {
	Rank  int    `json:"rank"`
	Local int    `json:"local"`
	Host  string `json:"host"`
	Nonce []byte `json:"nonce"`
	Proof []byte `json:"proof"`
}

// word is what rank 0 says next.
type word struct {
	Ask  []byte `json:"ask,omitempty"` // a question follows; the proof
	Over bool   `json:"over,omitempty"`
}

const nonceSize = 16

func nonce() []byte {
	n := make([]byte, nonceSize)
	_, _ = rand.Read(n) // never fails
	return n
}

// prove proves the key to the other side. The arrival is that of both.
func prove(key []byte, who string, w welcome, a arrival) []byte {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s %s %x %x %d %d %q", Schema, who, w.Nonce, a.Nonce, a.Rank, a.Local, a.Host)
	return m.Sum(nil)
}

func proved(key, proof []byte, who string, w welcome, a arrival) bool {
	return len(w.Nonce) == nonceSize && len(a.Nonce) == nonceSize && hmac.Equal(proof, prove(key, who, w, a))
}

// say writes a line.
func say(c net.Conn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(text, '\n'))
	return err
}

// hear reads a line, and not a byte more: what follows is a question's. Zero: it may take for ever.
func hear(c net.Conn, within time.Duration, v any) error {
	if within > 0 {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	}
	var line []byte
	for b := [1]byte{}; b[0] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		if len(line) == maxLine {
			return fmt.Errorf("a line of more than %d bytes", maxLine)
		}
	}
	return json.Unmarshal(line, v)
}
