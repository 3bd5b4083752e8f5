// Package sockets holds a table of what sockets do, and runs it on the simulated internet of tests/sim/internet and on the
// kernel's sockets in network namespaces. What one of the two gets wrong in the field becomes a row first.
//
// A row sees package sock alone: two hosts with a cable between them, and a handful of faults. Neither side knows how long
// anything takes, so a row waits for what it expects and never for a time.
package sockets
