// Package conformance holds a table of what verbs do, and runs it on the simulated adapters of tests/sim/adapter and on the
// C library of tests/fakeverbs. What one of the two gets wrong in the field becomes a row first.
//
// A row sees package ibv alone: two devices of one node with a cable between them, and a handful of faults. Neither side
// knows how long anything takes, so a row waits for what it expects and never for a time.
package conformance
