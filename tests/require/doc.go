// Package require lets a test skip for want of something that not every machine
// has, with its reason, and lets CI forbid that.
package require
