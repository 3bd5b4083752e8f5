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

// boot identifies the machine since it was started, "" where the kernel does not tell.
func (h host) boot() string {
	text, _ := os.ReadFile(filepath.Join(h.proc, "sys/kernel/random/boot_id"))
	return strings.TrimSpace(string(text))
}

// usage is the shares of a machine's processors that were used during a run.
type usage struct {
	Own    float64 `json:"own"`    // by the agent
	Others float64 `json:"others"` // by other processes
	Boot   string  `json:"boot"`   // the machine: agents in containers of one have the same
}

// since is what was used since before.
func (p processor) since(before processor, boot string) usage {
	all := float64(p.all - before.all)
	if all <= 0 {
		return usage{Boot: boot}
	}
	own, idle := float64(p.own-before.own), float64(p.idle-before.idle)
	return usage{Own: own / all, Others: max(0, all-idle-own) / all, Boot: boot}
}

// fewIdle is the share of idle time below which processors are taken to be the limit of what was measured.
const fewIdle = 0.1

// crowded is the share of the processors that processes of neither end of a flow took, if hardly any was left idle; else 0.
func (u usage) crowded(peer usage) float64 {
	others := u.Others
	if peer.Boot == u.Boot && u.Boot != "" {
		others = max(0, others-peer.Own)
	}
	if u.Own+u.Others < 1-fewIdle {
		return 0
	}
	return others
}
