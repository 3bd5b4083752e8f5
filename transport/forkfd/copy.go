package forkfd

import "golang.org/x/sys/unix"

// Copy copies a descriptor, and marks the copy. CloseFD closes it.
func Copy(fd int) (kept int, err error) {
	Do(func() {
		if kept, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			Mark(kept)
		}
	})
	return kept, err
}

// CloseFD clears the mark of a descriptor and closes it.
func CloseFD(fd int) (err error) {
	Do(func() {
		Clear(fd)
		err = unix.Close(fd)
	})
	return err
}
