package doctor

import (
	"fmt"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// Shares of what link and PCIe allow, in percent, of which less is a finding. The functions
// of a GB10's adapter (126 Gb/s) reach 112 Gb/s one way, and 190 both ways together.
const (
	slowShare     = 20 // the adapter is stuck: 13 Gb/s were seen
	lowShare      = 75
	bothWaysShare = 75 // of both ways together
)

// flows are the measurements; that there are none is said.
func flows(v *verdict) []facts.Flow {
	all, ok := v.Flows.Get()
	if !ok {
		for i := range v.Nodes {
			v.unknown(on(&v.Nodes[i]), v.Flows.Because())
		}
	}
	return all
}

// allowed is what link and PCIe of both ends let pass, Mb/s; 0 where it is not known.
func (v *verdict) allowed(f facts.Flow) int {
	a, b := v.port(f.From), v.port(f.To)
	if a == nil || b == nil {
		return 0
	}
	return min(a.Mbps(), b.Mbps())
}

func cableSlow(v *verdict) {
	for _, f := range flows(v) {
		at := v.across(f.From, f.To)
		most := v.allowed(f)
		switch {
		case most == 0 || f.Mbps <= 0:
			v.unknown(at, "not measured")
		case f.Mbps < most*slowShare/100:
			v.fail(at, fmt.Sprintf("shut %s and %s down, unplug their power for 90 s, and measure again", f.From.Node, f.To.Node), "%s one way over %s; link and PCIe allow %s", gbps(f.Mbps), f.From.Port, gbps(most))
		case f.Mbps < most*lowShare/100:
			v.warn(at, "measure again without other traffic; then reseat the cable", "%s one way over %s; link and PCIe allow %s", gbps(f.Mbps), f.From.Port, gbps(most))
		}
	}
}

func cableSlowBothWays(v *verdict) {
	for _, f := range flows(v) {
		at := v.across(f.From, f.To)
		both, most := f.Forth+f.Back, v.allowed(f)
		want := 2 * most * bothWaysShare / 100
		switch {
		case most == 0 || both <= 0:
			v.unknown(at, "not measured in both directions")
		case both < want:
			v.fail(at, fmt.Sprintf("reboot both %s and %s, measure again, then reseat", f.From.Node, f.To.Node), "%s of ≥ %s over %s in both directions at once (%s one way)", gbps(both), gbps(want), f.From.Port, gbps(f.Mbps))
		}
	}
}

// halfIdle looks at two halves that both have a way, while a connection used all its lanes.
func halfIdle(v *verdict) {
	for _, f := range flows(v) {
		if len(f.Moved) == 0 {
			v.unknown(v.across(f.From, f.To), "the bytes of each port were not counted")
			continue
		}
		for _, end := range []facts.End{f.From, f.To} {
			p := v.port(end)
			if p == nil || f.Moved[end.String()] == 0 {
				continue
			}
			for name, moved := range f.Moved {
				other := facts.End{Node: end.Node, Port: name[min(len(name), len(end.Node)+1):]}
				t := v.port(other)
				if moved == 0 && name == other.String() && t != nil && t.Cage() == p.Cage() && t.Active {
					v.warn(spot{places: []Place{Place(other)}}, "unset NCCL_IB_HCA, and see the lanes: ncclmesh status", "%s moved nothing, %s of the same cage %s", other.Port, end.Port, size(f.Moved[end.String()]))
				}
			}
		}
	}
}

// risen says what to do when a counter rises.
var risen = map[string]string{
	"rnr_nak_retry_err":     "this plugin posts receives first: see which other program uses the port",
	"out_of_sequence":       "packets are lost or overtake: look at the cable, and at mtu-mismatch",
	"packet_seq_err":        "packets are lost or overtake: look at the cable, and at mtu-mismatch",
	"local_ack_timeout_err": "acknowledgements are late or lost: reseat the cable",
	"roce_slow_restart":     "congestion control is at work, without a switch for nothing: see that nothing else uses the port",
	"rx_crc_errors":         "bits are damaged: reseat or replace the cable",
}

func countersRising(n *facts.Node, v *verdict) {
	counters, ok := n.Rising.Get()
	if !ok {
		v.unknown(on(n), n.Rising.Because())
		return
	}
	moved := uint64(0)
	for _, c := range counters {
		moved = max(moved, c.Moved)
		if c.Rise == 0 {
			continue
		}
		remedy := risen[c.Name]
		if remedy == "" {
			remedy = "reseat the cable, and see what else uses the port"
		}
		v.warn(on(n, c.Port), remedy, "%s rose by %d while %s were moved", c.Name, c.Rise, size(c.Moved))
	}
	if moved == 0 {
		v.unknown(on(n), "no data moved while the counters were watched")
	}
}
