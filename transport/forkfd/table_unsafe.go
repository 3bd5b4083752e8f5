// This file holds the one unsafe thing of the package: telling C where the table lies. The table is a package variable,
// which never moves, and a forked child inherits it like all memory.

package forkfd

import (
	"sync/atomic"
	"unsafe"
)

// Bits is the size of the table. Descriptors from here on are not closed in a child.
const Bits = 65536

var table [Bits / 64]atomic.Uint64

// Mark notes that fd is open and ours.
func Mark(fd int) {
	if fd >= 0 && fd < Bits {
		table[fd/64].Or(1 << (fd % 64))
	}
}

// Clear notes that fd is about to be closed.
func Clear(fd int) {
	if fd >= 0 && fd < Bits {
		table[fd/64].And(^(uint64(1) << (fd % 64)))
	}
}

// Table returns the address and the number of bits of the table: descriptor fd is bit fd%64 of the 64-bit word fd/64.
func Table() (addr uintptr, bits int) {
	return uintptr(unsafe.Pointer(&table)), Bits
}
