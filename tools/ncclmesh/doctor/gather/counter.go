package gather

import (
	"slices"
	"strconv"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// rising are the counters that tell of trouble while they rise: those of an RDMA port, and of
// its interface.
var rising = []string{"rnr_nak_retry_err", "out_of_sequence", "local_ack_timeout_err", "roce_slow_restart", "packet_seq_err"}

var risingOfInterface = []string{"rx_errors", "rx_dropped", "rx_crc_errors"}

// counters watches those of errors for as long as Sample says, beside what was moved.
func (l *looker) counters() {
	found, ok := l.node.Topology.Get()
	if !ok || l.Sample <= 0 {
		l.node.Rising = facts.Unknown[[]facts.Counter]("not measured: name a job with --pid N while it runs, or --sample TIME")
		return
	}
	before := l.readCounters(found.Ports)
	if len(before) == 0 {
		l.node.Rising = facts.Unknown[[]facts.Counter]("no port has counters")
		return
	}
	l.Sleep(l.Sample)
	after := l.readCounters(found.Ports)
	rose := []facts.Counter{}
	for _, b := range before {
		i := slices.IndexFunc(after, func(a facts.Counter) bool { return a.Port == b.Port && a.Name == b.Name })
		if i < 0 {
			continue
		}
		rose = append(rose, facts.Counter{Port: b.Port, Name: b.Name, Rise: rise(b.Rise, after[i].Rise), Moved: rise(b.Moved, after[i].Moved)})
	}
	l.node.Rising = facts.Known(rose)
}

// readCounters reads them as they stand.
func (l *looker) readCounters(ports []topology.Port) (all []facts.Counter) {
	for _, p := range ports {
		port := l.sys("class/infiniband", p.Device, "ports", strconv.Itoa(int(p.Num)))
		var moved uint64
		for _, name := range []string{"port_xmit_data", "port_rcv_data"} { // in words of 4 bytes
			n, err := number(port + "/counters/" + name)
			if err == nil {
				moved += 4 * n
			}
		}
		add := func(name, path string) {
			if n, err := number(path); err == nil {
				all = append(all, facts.Counter{Port: facts.PortName(&p), Name: name, Rise: n, Moved: moved})
			}
		}
		for _, name := range rising {
			add(name, port+"/hw_counters/"+name)
		}
		if p.Netdev != "" {
			for _, name := range risingOfInterface {
				add(name, l.sys("class/net", p.Netdev, "statistics", name))
			}
		}
	}
	return all
}

// rise is how far a counter went up; one that was reset did not.
func rise(before, after uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}
