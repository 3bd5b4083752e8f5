// Package forkfd keeps the table of descriptors that a forked child must close.
//
// A host process forks without exec (a DataLoader's workers do). A child that keeps the plugin's sockets and queue pairs
// open keeps its dead parent alive in the eyes of every peer. No Go code may run in such a child, so the table is plain
// memory outside the Go heap, a bit for each descriptor, for a C fork handler to walk.
//
// Mark a descriptor once it is open, Clear it before it is closed: in this order a set bit always means a descriptor of
// ours, never a number that someone else has been given since. Open and Mark, and Clear and close, belong into one [Do]: a
// fork waits until nobody is inside.
package forkfd
