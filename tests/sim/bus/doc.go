// Package bus orders what happens in a simulation: one event at a time, in virtual time, the same for a seed on every run.
//
// A bus lives in a bubble of testing/synctest. That alone is not reproducible: timers of one instant fire in random order,
// and goroutines that are woken together run in any order. The bus adds four rules.
//
//   - One event is released at a time, and only when every other goroutine of the bubble waits durably. What timers of the
//     same instant start has come to rest before the event is released.
//   - Instants never coincide. Events that are due at one instant are ordered by the name of their source, then by their
//     number in it, and released a nanosecond apart: the order in which goroutines asked for them does not matter.
//   - Each draw comes from the stream of a source; see tests/sim/draw.
//   - Goroutines that an event wakes, and those that they wake, take turns at one processor until all have come to rest. Where they
//     meet in the product's own structures the order matters: whether a message joins the one before it, say. [Run] sees
//     to that. With the race detector the scheduler draws the order, and the histories of one seed differ.
//
// What the model of a device, a cable or a socket does later it asks for by [Source.After]; a thread of the model waits by
// [Source.Sleep]. The product's own code uses package time. Nothing else may call synctest.Wait in the bubble, because only
// one goroutine may at a time: [Source.Sleep] of 0 waits until all others have come to rest.
//
// The function of an event runs on the goroutine of the bus. It may take mutexes that are held for moments only, wake
// goroutines and ask for more events; it must not wait. It wakes as its last act, or under a mutex that the woken goroutine
// takes first, because the woken goroutine runs beside it.
//
// The trace hashes every event: two runs of one seed that differ anywhere have different hashes.
package bus
