package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Where ranks run decides about half of what they get: a processor of their own or
// the one the other has, with the caches between. So every rank has its processor,
// and a C loop has the same.

// processors returns those that ranks run on, of a list such as "0,2"; without one
// they are the first that this process may use, and the first of another core.
func processors(list string) ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("processors of this process: %w", err)
	}
	if list != "" {
		return parseProcessors(list, set.IsSet)
	}
	var usable []int
	for cpu := 0; len(usable) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			usable = append(usable, cpu)
		}
	}
	return choose(usable, siblings), nil
}

func parseProcessors(list string, usable func(int) bool) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(list, ",") {
		cpu, err := strconv.Atoi(part)
		if err != nil || cpu < 0 || !usable(cpu) {
			return nil, fmt.Errorf("--cpus %s: %q is no processor that this process may use", list, part)
		}
		cpus = append(cpus, cpu)
	}
	if len(cpus) > 2 {
		return nil, fmt.Errorf("--cpus %s: want one for the first rank and one for the second", list)
	}
	return cpus, nil
}

// choose takes two, of two cores if it can.
func choose(usable []int, siblings func(cpu int) string) []int {
	if len(usable) < 2 {
		return usable
	}
	core := siblings(usable[0])
	for _, cpu := range usable[1:] {
		if core == "" || siblings(cpu) != core {
			return []int{usable[0], cpu}
		}
	}
	return usable[:2]
}

// siblings names the core of a processor; "" where the kernel does not say.
func siblings(cpu int) string {
	list, _ := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
	return string(list)
}

// inUse returns the processors that ranks run on at present.
func (b *bench) inUse() []int {
	if b.shared {
		return b.cpus[:1]
	}
	return slices.Compact(slices.Sorted(slices.Values(b.cpus)))
}

// startRank starts a command on the processor of its rank. What runs beside the ranks goes
// where there is room, and where they share a processor to another one.
func (b *bench) startRank(rank int, c command, cmd *exec.Cmd) error {
	switch {
	case !c.beside:
		return startOn(b.processor(rank), cmd)
	case b.shared:
		return startOn(b.cpus[len(b.cpus)-1], cmd)
	}
	return cmd.Start()
}

// processorTime is what processes have had of processors, in ns.
func processorTime(cmds []*exec.Cmd) (sum uint64) {
	for _, cmd := range cmds {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", cmd.Process.Pid))
		for _, t := range threads {
			text, _ := os.ReadFile(t) // a thread that has ended takes no more
			ran, _, _ := strings.Cut(string(text), " ")
			n, _ := strconv.ParseUint(ran, 10, 64)
			sum += n
		}
	}
	return sum
}

// startOn starts a program that stays on a processor, with all that it starts.
func startOn(cpu int, cmd *exec.Cmd) error {
	var before, only unix.CPUSet
	runtime.LockOSThread() // a child has the processors of the thread that starts it
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("processor %d: %w", cpu, err)
	}
	err := cmd.Start()
	if back := unix.SchedSetaffinity(0, &before); back != nil {
		return errors.Join(err, back) // the thread stays this goroutine's
	}
	runtime.UnlockOSThread()
	return err
}
