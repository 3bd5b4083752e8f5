package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

func sshFailed(v *verdict) {
	for _, l := range v.Lost {
		v.fail(both(l.Name), sshRemedy(l), "%s", l.Error)
	}
}

// sshRemedy is what to do about a node that could not be asked.
func sshRemedy(l facts.Lost) string {
	switch {
	case l.Next != "":
		return l.Next
	case strings.Contains(l.Error, "MASTER_ADDR"): // of ranks that meet
		return fmt.Sprintf("check that %s was started, and read its output", l.Name)
	}
	return fmt.Sprintf("try it by hand: ssh -o BatchMode=yes %s ncclmesh version", l.Name)
}

func machineIDCloned(v *verdict) {
	by := map[string][]string{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		id, ok := n.MachineID.Get()
		if !ok || id == "" {
			v.unknown(on(n), n.MachineID.Because())
			continue
		}
		by[id] = append(by[id], n.Name)
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		if at := by[id]; len(at) > 1 {
			v.warn(both(at[1:]...), "run rm /etc/machine-id && systemd-machine-id-setup, and reboot", "the machine id is the same as that of %s: DHCP and IPv6 may give both the same address", at[0])
		}
	}
}

// clocksApart is how much clocks may differ before it matters: certificates and logs go by them.
const clocksApart = 30 * time.Second

func clockDiffers(v *verdict) {
	var first *facts.Node
	var before facts.Ahead
	for i := range v.Nodes {
		n := &v.Nodes[i]
		now, ok := n.Ahead.Get()
		if !ok {
			v.unknown(on(n), n.Ahead.Because())
			continue
		}
		if first == nil {
			first, before = n, now
			continue
		}
		least, direction := now.Least-before.Most, "ahead of"
		if most := now.Most - before.Least; most < 0 {
			least, direction = -most, "behind"
		}
		if least > clocksApart {
			v.warn(both(n.Name), "set the clocks by a time server: timedatectl set-ntp true", "its clock is %s or more %s that of %s", since(least), direction, first.Name)
		}
	}
}

// versionsDiffer compares what should be the same everywhere.
func versionsDiffer(v *verdict) {
	compare := func(what string, of func(n *facts.Node) facts.Fact[string], remedy string) {
		var first *facts.Node
		for i := range v.Nodes {
			n := &v.Nodes[i]
			now, ok := of(n).Get()
			if !ok {
				v.unknown(on(n), what+": "+of(n).Because())
				continue
			}
			if first == nil {
				first = n
				continue
			}
			if before, _ := of(first).Get(); now != before {
				v.warn(both(first.Name, n.Name), remedy, "%s: %s on %s, %s on %s", what, before, first.Name, now, n.Name)
			}
		}
	}
	compare("kernel", func(n *facts.Node) facts.Fact[string] { return n.Kernel }, "update the older one")
	compare("ncclmesh", func(n *facts.Node) facts.Fact[string] { return facts.Known(n.Build) }, "install the same build everywhere")
	var boards []string
	for _, n := range v.Nodes {
		for _, a := range n.Adapters {
			if b, ok := a.Board.Get(); ok && !slices.Contains(boards, b) {
				boards = append(boards, b)
			}
		}
	}
	for _, b := range boards {
		v.firmware(b)
	}
}

// firmware compares that of adapters of one make.
func (v *verdict) firmware(board string) {
	var first, before string
	for i := range v.Nodes {
		n := &v.Nodes[i]
		for _, a := range n.Adapters {
			if b, _ := a.Board.Get(); b != board {
				continue
			}
			fw, ok := a.Firmware.Get()
			switch {
			case !ok:
				v.unknown(on(n), "firmware: "+a.Firmware.Because())
			case first == "":
				first, before = n.Name, fw
			case fw != before:
				v.warn(both(first, n.Name), "update the older one: fwupdmgr update", "firmware of %s: %s on %s, %s on %s (%s)", board, before, first, fw, n.Name, a.Device)
			}
		}
	}
}
