package handshake

import (
	"cmp"
	"fmt"
)

// build is set by the Makefile (-ldflags -X).
var build = "1.0-dev"

// buildSize is the room for a build's name on the wire: ASCII without spaces, then zeros.
//
// Two sides of different versions name both builds, so the place does not move: since version 2 it is the last bytes of
// a handle, and the first of the body of Challenge, Hello and Reject.
const buildSize = 24

// Build names the source that this side was built from.
func Build() string { return buildText(buildField(build)) }

func buildField(name string) (b [buildSize]byte) {
	for i := range min(len(name), buildSize) {
		if b[i] = name[i]; !plainASCII(b[i]) {
			b[i] = '?'
		}
	}
	return b
}

// buildText is what can be shown of a field, from whatever version.
func buildText(b [buildSize]byte) string {
	n := 0
	for n < buildSize && plainASCII(b[n]) {
		n++
	}
	return string(b[:n])
}

func plainASCII(c byte) bool { return c > ' ' && c < 0x7f }

// build handles a build's name. An empty one is written as this side's.
func (c *codec) build(name *string) {
	if !c.reads {
		b := buildField(cmp.Or(*name, build))
		c.bytes(b[:])
		return
	}
	b := [buildSize]byte(c.take(buildSize))
	*name = buildText(b)
	if *name == "" {
		c.fail("no build is named")
	}
	for _, rest := range b[len(*name):] {
		if rest != 0 {
			c.fail("the build's name is not plain text")
		}
	}
}

// VersionError says that the other side speaks another version of the protocol.
type VersionError struct {
	Theirs uint8
	Build  string // of the other side; "" where its version does not tell
}

func (e *VersionError) Error() string {
	theirs := "build " + e.Build
	switch {
	case e.Build == "" && e.Theirs < Version:
		theirs = "an older build"
	case e.Build == "":
		theirs = "an unknown build"
	}
	return fmt.Sprintf("protocol version %d (%s), this side speaks version %d (build %s): install the same plugin on every node",
		e.Theirs, theirs, Version, Build())
}
