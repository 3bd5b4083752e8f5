// Package transporttest is what the tests of transport's rooms have in common: two
// transports of the test's own process, and the calls that their connections are tried with.
//
// A test that [Run] runs is simulated: in virtual time, on the machines and cables of a [World]. The tests of a package whose
// TestMain calls [Main] run on a fabric of tests/fakeverbs and over the kernel's sockets instead, which needs gcc and network namespaces.
package transporttest
