package doctor

import (
	"fmt"
	"slices"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/rate"
	"ncclmesh/transport/topology"
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

// crowded says what other programs took of the processors, where it is so much that nothing can be told; else "".
func (v *verdict) crowded(f facts.Flow) string {
	i := f.Busy()
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("other programs took %.0f %% of the processors of %s, and hardly any was idle: measure again without them", 100*f.Crowded[i], [...]facts.End{f.From, f.To}[i].Node)
}

// sure is what TCP does over one cable on any processor that runs such jobs, Gb/s.
const sure = 5

// wanted is what a half is to carry one way, in Gb/s, and where that is known from. What TCP carries depends on the processor: it
// is held beside the best of the other cables.
func wanted(all []facts.Flow, f facts.Flow) (want float64, from string) {
	if f.RDMA {
		return f.Allowed, fmt.Sprintf("link and PCIe allow %.4g", f.Allowed)
	}
	best := 0.0
	for _, o := range all {
		if !o.RDMA && o.Error == "" && (o.From != f.From || o.To != f.To) {
			best = max(best, min(o.Forth, o.Back))
		}
	}
	switch {
	case best == 0:
		best, from = sure, fmt.Sprintf("TCP does %.4g and more on any processor", float64(sure))
	default:
		from = fmt.Sprintf("TCP does %.4g over another cable", best)
	}
	if f.Allowed > 0 && f.Allowed < best {
		return f.Allowed, fmt.Sprintf("the link allows %.4g", f.Allowed)
	}
	return best, from
}

// slow are the halves that carry less than a share of what they are to carry, and reports whether one of a node's does not.
func slow(all []facts.Flow) (failed []half, works func(node string) bool) {
	fast := map[string]bool{}
	for _, f := range all {
		share := float64(rate.Low)
		if !f.RDMA {
			share = rate.Stuck
		}
		if want, _ := wanted(all, f); rate.Below(min(f.Forth, f.Back), want, share) {
			failed = append(failed, half{a: f.From, b: f.To})
		} else {
			fast[f.From.Node], fast[f.To.Node] = true, true
		}
	}
	return failed, func(node string) bool { return fast[node] }
}

func cableSlow(v *verdict) {
	all := flows(v)
	culprits := v.culprits(slow(all))
	for _, f := range all {
		slower := min(f.Forth, f.Back)
		want, from := wanted(all, f)
		least, remedy := want*rate.Low/100, fmt.Sprintf("shut %s and %s down, unplug their power for 90 s, and measure again", f.From.Node, f.To.Node)
		if nodes := shared(culprits, half{a: f.From, b: f.To}); nodes != "" {
			remedy = fmt.Sprintf("look at %s first, whose cables are all slow: what else runs there, and its power supply; then shut it down, unplug its power for 90 s, and measure again", nodes)
		} else if !f.RDMA {
			least, remedy = want*rate.Stuck/100, fmt.Sprintf("look at the speed of %s and at its queueing discipline (tc qdisc show) on both nodes; then reseat or replace the cable", f.From.Port)
		}
		busy := v.crowded(f)
		switch said := fmt.Sprintf("%.4g Gb/s one way over %s; %s", slower, f.From.Port, from); {
		case f.Error != "":
			v.unknown(v.flow(f), fmt.Sprintf("%s could not be measured: %s", f.From.Port, f.Error))
		case want <= 0 || slower <= 0:
			v.unknown(v.flow(f), "not measured")
		case slower < least && busy != "":
			v.unknown(v.flow(f), said+"; "+busy)
		case rate.Below(slower, want, rate.Stuck):
			v.fail(v.flow(f), remedy, "%s", said)
		case slower < least:
			v.warn(v.flow(f), "measure again without other traffic; then reseat the cable", "%s", said)
		}
	}
}

// cableSlowBothWays looks at what RDMA carries in both directions at once. What is as slow one way is cable-slow's.
func cableSlowBothWays(v *verdict) {
	for _, f := range flows(v) {
		want := 2 * f.Allowed * rate.BothWays / 100
		oneWay := rate.Below(min(f.Forth, f.Back), f.Allowed, rate.Low) && f.Both >= (f.Forth+f.Back)*rate.BothWays/100
		switch said := fmt.Sprintf("%.4g of ≥ %.4g Gb/s over %s in both directions at once (%.4g one way)", f.Both, want, f.From.Port, min(f.Forth, f.Back)); {
		case !f.RDMA:
		case f.Error != "":
			v.unknown(v.flow(f), fmt.Sprintf("%s could not be measured: %s", f.From.Port, f.Error))
		case f.Allowed <= 0 || f.Both <= 0:
			v.unknown(v.flow(f), "not measured in both directions")
		case f.Both >= want || oneWay:
		case v.crowded(f) != "":
			v.unknown(v.flow(f), said+"; "+v.crowded(f))
		default:
			v.fail(v.flow(f), fmt.Sprintf("reboot both %s and %s, measure again, then reseat", f.From.Node, f.To.Node), "%s", said)
		}
	}
}

// sample is what happened to ports that may have a cable while the counters were watched, and whether anything did.
func sample(n *facts.Node, v *verdict) (facts.Sample, bool) {
	s, ok := n.Sample.Get()
	if !ok {
		v.unknown(on(n), n.Sample.Because())
		return s, false
	}
	ports := meshPorts(n, v)
	of := func(name string) bool {
		return slices.ContainsFunc(ports, func(p topology.Port) bool { return facts.PortName(&p) == name })
	}
	s.Rising = slices.DeleteFunc(slices.Clone(s.Rising), func(c facts.Counter) bool { return !of(c.Port) })
	for port, moved := range s.Moved {
		if moved > 0 && of(port) {
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
