// Package guard keeps a panic from ending the host process, which is not ours:
// every goroutine of this module runs under it, and fails what it serves instead.
package guard
