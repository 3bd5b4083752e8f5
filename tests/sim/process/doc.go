// Package process has what a simulated process has of its own, whatever it runs on: timers, random numbers, and stops.
package process
