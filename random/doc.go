// Package random has the source of all random numbers that a process of the mesh draws.
//
// There is one for each process, so that a simulation that plays several in one can have each draw the same numbers again.
package random
