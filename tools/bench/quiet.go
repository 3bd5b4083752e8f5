package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A watch tells how much of some processors' time went to others while a figure was
// measured: the machine may be shared.
type watch struct {
	cpus  []int
	began time.Time
	busy  time.Duration // of those, when it began
	own   time.Duration // of the programs measured, since
}

func startWatch(cpus []int) watch {
	return watch{cpus: cpus, began: time.Now(), busy: busyTime(cpus)}
}

// others is the share of the processors' time that went to other programs.
func (w watch) others() float64 {
	all := time.Since(w.began) * time.Duration(len(w.cpus))
	return max(0, float64(busyTime(w.cpus)-w.busy-w.own)/float64(all))
}

// busyTime is the time that processors have been busy; 0 where the kernel does not
// say.
func busyTime(cpus []int) time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseBusy(string(stat), cpus)
}

func parseBusy(stat string, cpus []int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ, which is 100 everywhere
	var busy time.Duration
	for line := range strings.Lines(stat) {
		var cpu int
		var user, nice, system, idle, iowait, irq, softirq, steal int64
		n, _ := fmt.Sscanf(line, "cpu%d %d %d %d %d %d %d %d %d", &cpu, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
		if n == 9 && slices.Contains(cpus, cpu) {
			busy += time.Duration(user+nice+system+irq+softirq+steal) * tick
		}
	}
	return busy
}
