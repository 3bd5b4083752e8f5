// Package rate says which of the rates that were measured over a cable are too low. The commands that measure cables and the one that looks
// for faults share it, so that they do not contradict each other.
package rate
