// Package clock makes the timers of the plugin. They are those of package time, except in a simulation, whose own wait while
// the process that set them is stopped, and fire in the order that its seed decides.
//
// What the time is, time.Now says everywhere: a process that is stopped finds that time has passed, as after SIGSTOP. What
// must not count that time measures with a [Watch].
package clock
