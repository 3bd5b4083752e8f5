// Package stats has counters that may be read while they count.
package stats
