package bootstrap

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/fault"
)

// A seal encrypts and authenticates the messages between members and the root, because they contain handles: a process that reads a
// handle may connect to its rank. Nothing else that lanes carry is encrypted. The key follows from the secret in the ID.
//
//	0   nonce 12, random
//	12  message, encrypted by AES-256-GCM, with the number of the message in its connection as additional data
type seal struct {
	aead   cipher.AEAD
	random random.Source
}

// newSeal returns the seal of a job with a secret.
func newSeal(secret handshake.Secret, r random.Source) *seal {
	key, _ := hkdf.Key(sha256.New, secret[:], nil, "ncclmesh bootstrap", sha256.Size) // the length is possible
	return &seal{newGCM(key), r}
}

// newGCM returns AES-256-GCM with a key of 32 bytes.
func newGCM(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key has the size of one
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size
	}
	return aead
}

// close seals message number n of whose.
func (s *seal) close(n uint64, whose fmt.Stringer, message []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(message)+s.aead.Overhead())
	s.random.For(whose).Fill(nonce, fmt.Sprintf("nonce of message %d", n))
	return s.aead.Seal(nonce, nonce, message, binary.BigEndian.AppendUint64(nil, n))
}

// open returns message number n.
func (s *seal) open(n uint64, b []byte) ([]byte, error) {
	size := s.aead.NonceSize()
	if len(b) <= size+s.aead.Overhead() {
		return nil, fmt.Errorf("%w: a bootstrap message of %d bytes", fault.ErrProtocol, len(b))
	}
	m, err := s.aead.Open(b[size:size], b[:size], b[size:], binary.BigEndian.AppendUint64(nil, n))
	if err != nil {
		return nil, fmt.Errorf("%w: a bootstrap message is not sealed with the secret of the job: %w", fault.ErrProtocol, err)
	}
	return m, nil
}
