package doctor

import (
	"fmt"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// Shares of what link and PCIe allow, in percent, of which less is a finding. On a GB10, whose
// functions have 126 Gb/s of PCIe, people reach 112 Gb/s one way, and 190 both ways together.
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

// flow is where one was.
func (v *verdict) flow(f facts.Flow) spot { return v.across(f.From, f.To) }

func cableSlow(v *verdict) {
	for _, f := range flows(v) {
		slower := min(f.Forth, f.Back)
		switch {
		case f.Error != "":
			v.unknown(v.flow(f), fmt.Sprintf("%s could not be measured: %s", f.From.Port, f.Error))
		case f.Allowed <= 0 || slower <= 0:
			v.unknown(v.flow(f), "not measured")
		case slower < f.Allowed*slowShare/100:
			v.fail(v.flow(f), fmt.Sprintf("shut %s and %s down, unplug their power for 90 s, and measure again", f.From.Node, f.To.Node), "%.4g Gb/s one way over %s; link and PCIe allow %.4g", slower, f.From.Port, f.Allowed)
		case slower < f.Allowed*lowShare/100:
			v.warn(v.flow(f), "measure again without other traffic; then reseat the cable", "%.4g Gb/s one way over %s; link and PCIe allow %.4g", slower, f.From.Port, f.Allowed)
		}
	}
}

func cableSlowBothWays(v *verdict) {
	for _, f := range flows(v) {
		want := 2 * f.Allowed * bothWaysShare / 100
		switch {
		case f.Error != "":
			v.unknown(v.flow(f), fmt.Sprintf("%s could not be measured: %s", f.From.Port, f.Error))
		case f.Allowed <= 0 || f.Both <= 0:
			v.unknown(v.flow(f), "not measured in both directions")
		case f.Both < want:
			v.fail(v.flow(f), fmt.Sprintf("reboot both %s and %s, measure again, then reseat", f.From.Node, f.To.Node), "%.4g of ≥ %.4g Gb/s over %s in both directions at once (%.4g one way)", f.Both, want, f.From.Port, min(f.Forth, f.Back))
		}
	}
}

// sample is what happened while the counters were watched, and whether anything did.
func sample(n *facts.Node, v *verdict) (facts.Sample, bool) {
	s, ok := n.Sample.Get()
	if !ok {
		v.unknown(on(n), n.Sample.Because())
		return s, false
	}
	for _, moved := range s.Moved {
		if moved > 0 {
			return s, true
		}
	}
	v.unknown(on(n), "no data moved while the counters were watched")
	return s, true
}

// busy is how much a half has to move for its twin's silence to mean something, in bytes: the
// interface's own chatter is less.
const busy = 1 << 20

// halfIdle looks at two halves of a cage while data moves over one of them.
func halfIdle(n *facts.Node, v *verdict) {
	ports, ok := rdmaPorts(n, v)
	if !ok {
		return
	}
	s, ok := sample(n, v)
	if !ok {
		return
	}
	for _, p := range roce(ports) {
		moved, counted := s.Moved[facts.PortName(&p)]
		if !counted || moved >= busy/1024 {
			continue
		}
		for _, t := range roce(ports) {
			if t.Cage() == p.Cage() && s.Moved[facts.PortName(&t)] >= busy {
				v.warn(on(n, facts.PortName(&p)), "unset NCCL_IB_HCA, and see the lanes: ncclmesh status", "%s moved %s, %s of the same cage %s", p.Netdev, size(moved), t.Netdev, size(s.Moved[facts.PortName(&t)]))
			}
		}
	}
}

// risen says what to do when a counter rises.
var risen = map[string]string{
	"rnr_nak_retry_err":     "another program uses the port: this plugin posts receives first and never causes this",
	"out_of_sequence":       "packets are lost or arrive out of order: check the cable, and see mtu-mismatch",
	"packet_seq_err":        "packets are lost or arrive out of order: check the cable, and see mtu-mismatch",
	"local_ack_timeout_err": "acknowledgements are late or lost: reseat the cable",
	"roce_slow_restart":     "congestion control slows the port down, which a cable without a switch does not need: check what else uses the port",
	"rx_crc_errors":         "bits are damaged: reseat or replace the cable",
}

func countersRising(n *facts.Node, v *verdict) {
	s, _ := sample(n, v)
	for _, c := range s.Rising {
		remedy := risen[c.Name]
		if remedy == "" {
			remedy = "reseat the cable, and check what else uses the port"
		}
		v.warn(on(n, c.Port), remedy, "%s rose by %d while %s were moved", c.Name, c.Rise, size(s.Moved[c.Port]))
	}
}
