// Package mutants has no code, only tests of the simulator: mistakes are made in the product, one at a time, and the jobs of
// tests/sim/mesh must find each of them.
//
// A mutant is a few edits of the product's text: each fix of an interleaving that was once found by accident, taken back, and
// each mistake that the tests of transport/conn/failover make in how the protocol is used, made in the code. That the edits still fit the code is
// tested always. With FULL=1 each mutant is compiled, with an overlay and no copy of the module, and runs the jobs: first the
// one that found it last, which moves with every change of the model, then all from seed 1 on. -mutant chooses mutants, and
// -search says how many seeds may be tried.
//
// A fix that closes a window in which no time passes has a mutant that stretches it: in virtual time a thread is never
// preempted between two instructions, so that a pause stands for the preemption. All are compiled with such pauses where a
// goroutine gives a turn back, and with limits that are lower than those that ship, so that jobs of a second reach them.
package mutants
