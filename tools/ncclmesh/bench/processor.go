package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processor is what the machine's processors have done so far, in units of their time.
type processor struct {
	all, idle time.Duration
	own       time.Duration // by this process
}

// tick is the unit of /proc/stat: USER_HZ is 100 on all that this runs on.
const tick = time.Second / 100

// processor reads it. Where the kernel does not tell, all is 0.
func (h host) processor() (p processor) {
	text, _ := os.ReadFile(filepath.Join(h.proc, "stat"))
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if i == 0 || i > 8 || err != nil { // "cpu", and what guests take, which is counted before
			continue
		}
		p.all += time.Duration(n) * tick
		if i == 4 || i == 5 { // idle, and idle while a disk is waited for
			p.idle += time.Duration(n) * tick
		}
	}
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) == nil {
		p.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	return p
}

// crowdedBelow is the share of idle time below which processors are taken to be the limit of what was measured.
const crowdedBelow = 0.1

// crowded is the share of the processors' time that other processes took since before, if hardly any was left idle; else 0.
func (p processor) crowded(before processor) float64 {
	all := p.all - before.all
	if all <= 0 || float64(p.idle-before.idle) > crowdedBelow*float64(all) {
		return 0
	}
	return max(0, float64(all-(p.idle-before.idle)-(p.own-before.own))/float64(all))
}
