// Package hosts runs a test of one package in virtual time: on hosts of [internet], with the sockets, timers and random numbers
// of their processes. Whole jobs, with RDMA adapters and machines that describe themselves, are in package mesh.
//
//	func TestSession(t *testing.T) {
//		hosts.Run(t, func(t *hosts.Test) {
//			p := t.Process("a")
//			e, err := control.New(control.Config{Network: p, Clock: p.Clock(), Random: p.Random()})
//			…
//			t.Cleanup(func() { e.Close() })
//		})
//	}
//
// A Test is a testing.T of its bubble, so that helpers for tests take it as one. A test fails where a process has a socket
// open after the cleanups; a goroutine that is left is found by synctest.
package hosts
