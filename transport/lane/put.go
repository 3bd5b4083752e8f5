package lane

// The last two bits of the code of a put, which are 0 or 1 in an immediate, and the largest number of a window, which the
// other bits hold.
const (
	putMark   = 3
	MaxWindow = 1<<30 - 1
)

// PutCode returns the code that marks a part of a put on lanes whose carriers place parts themselves, where a part of a
// message has its immediate: window is the number of the receiver's window into which the bytes go.
func PutCode(window uint32) uint32 { return window<<2 | putMark }

// PutWindow returns the window that a code names, and whether the code is that of a put. Otherwise it is an immediate.
func PutWindow(code uint32) (window uint32, put bool) { return code >> 2, code&putMark == putMark }
