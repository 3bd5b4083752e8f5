package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String returns the text of the scenario: a line for each thing. Two scenarios with one text are equal.
func (s *Scenario) String() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, n := range s.Notes {
		lines = append(lines, strings.TrimRight("# "+n, " "))
	}
	add("seed %d", s.Seed)
	for _, m := range s.Machines {
		add("machine %s", m)
	}
	for i := range s.Cables {
		lines = append(lines, s.Cables[i].String())
	}
	if s.Management {
		add("management network")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		add("set %s=%s", name, s.Settings[name])
	}
	for i := range s.Connections {
		lines = append(lines, s.Connections[i].String())
	}
	for i := range s.Exchanges {
		lines = append(lines, s.Exchanges[i].String())
	}
	for i := range s.Faults {
		lines = append(lines, s.Faults[i].String())
	}
	return strings.Join(append(lines, s.Expect.lines()...), "\n") + "\n"
}

// String returns the line of the cable, as in "cable 0 na nb rdma 100Gbps".
func (w *Wire) String() string {
	kind := "tcp"
	if w.RDMA {
		kind = "rdma"
	}
	text := fmt.Sprintf("cable %d %s %s %s %s", w.Number, w.From, w.To, kind, speeds.format(w.Speed.Rate*8))
	if w.Speed.Latency != fast.Latency {
		text += " latency " + w.Speed.Latency.String()
	}
	if w.Speed.Jitter != fast.Jitter {
		text += " jitter " + w.Speed.Jitter.String()
	}
	return text
}

// String returns the line of the connection, as in "connect na nb 200 messages to 1MiB".
func (c *Connection) String() string {
	text := fmt.Sprintf("connect %s %s %d messages to %s", c.From, c.To, c.Messages, sizes.format(int64(c.Largest)))
	if c.Pauses != pauses {
		text += fmt.Sprintf(" pauses %d%%", c.Pauses)
	}
	if c.Window != window {
		text += fmt.Sprintf(" window %d", c.Window)
	}
	if c.Group != group {
		text += fmt.Sprintf(" group %d", c.Group)
	}
	if c.Ranges != 0 {
		text += fmt.Sprintf(" ranges %d", c.Ranges)
	}
	if c.Memory != HostMemory {
		text += " memory " + c.Memory
	}
	return text
}

// String returns the line of the exchange, as in "exchange na nb 200 operations to 64KiB".
func (x *Exchange) String() string {
	text := fmt.Sprintf("exchange %s %s %d operations to %s", x.From, x.To, x.Operations, sizes.format(int64(x.Largest)))
	if x.Pauses != pauses {
		text += fmt.Sprintf(" pauses %d%%", x.Pauses)
	}
	if x.Window != window {
		text += fmt.Sprintf(" window %d", x.Window)
	}
	if x.Memory != HostMemory {
		text += " memory " + x.Memory
	}
	return text
}

// String returns the line of the fault, as in "at 1.2s for 300ms cable 0 cut".
func (f *Fault) String() string {
	text := "at "
	if f.Traffic {
		text += "traffic+"
	}
	text += f.At.String()
	switch {
	case f.Until:
		text += " until traffic+" + f.For.String()
	case f.For > 0:
		text += " for " + f.For.String()
	}
	return text + " " + f.what()
}

// what is the line of the fault without its times.
func (f *Fault) what() string {
	text := "machine " + f.Machine + " " + f.Kind
	if f.Cable >= 0 {
		text = fmt.Sprintf("cable %d %s", f.Cable, f.Kind)
		if f.Machine != "" {
			text += " at " + f.Machine
		}
	}
	if k := f.find(); k != nil && k.amount.unit != nil {
		text += " " + k.amount.unit.format(f.Amount)
	}
	return text
}

// lines returns a line for each thing that is expected.
func (e *Expectation) lines() (all []string) {
	for _, m := range e.Deaths {
		all = append(all, "expect death of "+m)
	}
	if e.Calm {
		all = append(all, "expect calm")
	}
	if e.Grants {
		all = append(all, "expect all grants")
	}
	if e.RDMA {
		all = append(all, "expect RDMA")
	}
	all = append(all, "expect end within "+e.Within.String())
	if e.Healed > 0 {
		all = append(all, "expect healed within "+e.Healed.String())
	}
	return all
}
