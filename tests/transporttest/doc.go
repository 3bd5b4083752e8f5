// Package transporttest is what the tests of transport's rooms have in common: two
// transports of the test's own process, over the ports of a small fabric of
// tests/fakeverbs or over TCP, and the calls that their connections are tried with.
package transporttest
