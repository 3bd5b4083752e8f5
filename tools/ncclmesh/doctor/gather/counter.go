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

// risingAlone are those of interfaces without an RDMA device, which drop what is not for them in the best of health.
var risingAlone = []string{"rx_errors", "rx_crc_errors"}

// notSampled is why nothing is known of them.
const notSampled = "the counters were not watched: --sample TIME does, while a job runs"

// counters watches those of errors for as long as Sample says, beside what was moved.
func (l *looker) counters() {
	found, ok := l.node.Topology.Get()
	if !ok || l.Sample <= 0 {
		l.node.Sample = facts.Unknown[facts.Sample](notSampled)
		return
	}
	moved, counted := l.readCounters(&found)
	if len(moved) == 0 {
		l.node.Sample = facts.Unknown[facts.Sample]("no port counts what it moves")
		return
	}
	l.Sleep(l.Sample)
	movedNow, now := l.readCounters(&found)
	for port, before := range moved {
		moved[port] = rise(before, movedNow[port])
	}
	rose := []facts.Counter{}
	for i := range counted {
		c := &counted[i]
		at := slices.IndexFunc(now, func(n facts.Counter) bool { return n.Port == c.Port && n.Name == c.Name })
		if at < 0 {
			continue
		}
		if c.Rise = rise(c.Rise, now[at].Rise); c.Rise > 0 {
			rose = append(rose, *c)
		}
	}
	l.node.Sample = facts.Known(facts.Sample{Moved: moved, Rising: rose})
}

// readCounters reads them as they stand: those of RDMA ports, with their interfaces, and those of other interfaces.
func (l *looker) readCounters(found *topology.Node) (moved map[string]uint64, counted []facts.Counter) {
	moved = map[string]uint64{}
	for _, p := range found.Plain {
		statistics := l.sys("class/net", p.Netdev, "statistics")
		if slices.ContainsFunc(found.Ports, func(r topology.Port) bool { return r.Netdev == p.Netdev }) || p.Loopback {
			continue
		}
		for _, bytes := range []string{"rx_bytes", "tx_bytes"} {
			if n, err := number(statistics + "/" + bytes); err == nil {
				moved[p.Netdev] += n
			}
		}
		for _, counter := range risingAlone {
			if n, err := number(statistics + "/" + counter); err == nil {
				counted = append(counted, facts.Counter{Port: p.Netdev, Name: counter, Rise: n})
			}
		}
	}
	for _, p := range found.Ports {
		port, name := l.sys("class/infiniband", p.Device, "ports", strconv.Itoa(int(p.Num))), facts.PortName(&p)
		for _, data := range []string{"port_xmit_data", "port_rcv_data"} { // in words of 4 bytes
			if n, err := number(port + "/counters/" + data); err == nil {
				moved[name] += 4 * n
			}
		}
		add := func(counter, path string) {
			if n, err := number(path); err == nil {
				counted = append(counted, facts.Counter{Port: name, Name: counter, Rise: n})
			}
		}
		for _, counter := range rising {
			add(counter, port+"/hw_counters/"+counter)
		}
		if p.Netdev != "" {
			for _, counter := range risingOfInterface {
				add(counter, l.sys("class/net", p.Netdev, "statistics", counter))
			}
		}
	}
	return moved, counted
}

// rise is how far a counter went up; one that was reset did not.
func rise(before, after uint64) uint64 {
	if after < before {
		return 0
	}
	return after - before
}
