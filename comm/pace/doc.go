// Package pace decides how long a caller pauses between two polls of a connection.
//
// The connections of package transport move data only while they are polled. A caller that waits for one polls it without a
// pause at first, because the other side often answers within microseconds, and then with pauses that grow, so that a long
// wait costs little processor time.
package pace
