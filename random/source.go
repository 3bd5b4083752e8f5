package random

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A Source fills b with random bytes. What names the thing that they are for. Different things that are made at a time should
// have different names: goroutines draw in an order that is not the same in each run, so a source that repeats itself has to
// go by the name. It may be called from any goroutine. The nil Source is the system's.
type Source func(b []byte, what string)

// For returns the source for what belongs to someone or something, whose name goes before the names of draws.
func (s Source) For(whose any) Source {
	if s == nil {
		return nil
	}
	return func(b []byte, what string) { s(b, fmt.Sprintf("%+v: %s", whose, what)) }
}

// Fill fills b with random bytes.
func (s Source) Fill(b []byte, what string) {
	if s == nil {
		rand.Read(b)
		return
	}
	s(b, what)
}

// Uint64 returns a random number.
func (s Source) Uint64(what string) uint64 {
	var b [8]byte
	s.Fill(b[:], what)
	return binary.LittleEndian.Uint64(b[:])
}

// N returns a random number from 0 to n-1. It panics when n is not positive.
func N[T ~int | ~int64](s Source, n T, what string) T {
	if n <= 0 {
		panic("random: a range without a number")
	}
	high, _ := bits.Mul64(s.Uint64(what), uint64(n)) // as even as 64 bits can be
	return T(high)
}
