package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A watch tells how much processor time went to others while a figure was
// measured: the machine may be shared.
type watch struct {
	began time.Time
	busy  time.Duration // of all processors, when it began
	own   time.Duration // of the programs measured, since
}

func startWatch() watch { return watch{began: time.Now(), busy: busyTime()} }

// others is the share of the processors' time that went to other programs.
func (w watch) others(cpus int) float64 {
	all := time.Since(w.began) * time.Duration(cpus)
	return max(0, float64(busyTime()-w.busy-w.own)/float64(all))
}

// busyTime is the time that all processors have been busy; 0 where the kernel
// does not say.
func busyTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseBusy(string(stat))
}

func parseBusy(stat string) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ, which is 100 everywhere
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	line, _, _ := strings.Cut(stat, "\n")
	if n, _ := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); n < 8 {
		return 0
	}
	return time.Duration(user+nice+system+irq+softirq+steal) * tick
}
