package lab

import (
	"fmt"
	"io"
)

// A cpioWriter writes a "newc" archive, the format of an initramfs. The kernel accepts archives one after the other.
type cpioWriter struct {
	w   io.Writer
	ino int
	off int64
	err error
}

// Mode bits of cpio entries.
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioLink = 0o120000
)

func (c *cpioWriter) dir(name string)                 { c.entry(name, cpioDir|0o755, nil) }
func (c *cpioWriter) link(name, target string)        { c.entry(name, cpioLink|0o777, []byte(target)) }
func (c *cpioWriter) file(name string, data []byte)   { c.entry(name, cpioFile|0o644, data) }
func (c *cpioWriter) script(name string, data []byte) { c.entry(name, cpioFile|0o755, data) }

// close writes the trailer and returns the first error met.
func (c *cpioWriter) close() error {
	c.ino = 0
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}

func (c *cpioWriter) entry(name string, mode int, data []byte) {
	nlink := 1
	if mode == 0 { // the trailer
		c.ino = -1
	}
	c.ino++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, nlink, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.write([]byte(header + name + "\x00"))
	c.pad()
	c.write(data)
	c.pad()
}

func (c *cpioWriter) pad() { c.write(make([]byte, -c.off&3)) }

func (c *cpioWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(b)
	c.off += int64(n)
	c.err = err
}
