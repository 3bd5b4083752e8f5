package sock

import (
	"sync/atomic"
	"unsafe"

	"ncclmesh/transport/forkfd"
)

// marked returns the descriptors that a forked child would close.
func marked() []int {
	var fds []int
	addr, bits := forkfd.Table()
	words := unsafe.Slice(*(**uint64)(unsafe.Pointer(&addr)), bits/64)
	for i := range words {
		w := atomic.LoadUint64(&words[i])
		for b := range 64 {
			if w&(1<<b) != 0 {
				fds = append(fds, i*64+b)
			}
		}
	}
	return fds
}
