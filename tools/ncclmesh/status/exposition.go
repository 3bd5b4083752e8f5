package status

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ncclmesh/transport/stats"
)

// families are all metrics, in the order in which they are written.
var families = []struct{ name, kind, help string }{
	{"ncclmesh_process_info", "gauge", "A process with the plugin, or a relay."},
	{"ncclmesh_start_time_seconds", "gauge", "When the process opened its end of the mesh, in seconds since 1970."},
	{"ncclmesh_connections", "gauge", "Senders and receivers of connections."},
	{"ncclmesh_lane_bytes_total", "counter", "Bytes that lanes have carried, including those sent again."},
	{"ncclmesh_lane_messages_total", "counter", "Messages, or parts of them, that lanes have carried."},
	{"ncclmesh_lane_resent_bytes_total", "counter", "Bytes sent again after another lane had failed."},
	{"ncclmesh_lane_failures_total", "counter", "Lanes that failed."},
	{"ncclmesh_lane_lost_total", "counter", "How often the last lane of a path failed."},
	{"ncclmesh_lane_away_seconds_total", "counter", "How long there was no lane, until one came back."},
	{"ncclmesh_lane_up", "gauge", "Whether lanes are in service."},
	{"ncclmesh_relay_circuits", "gauge", "Circuits that are relayed for other nodes."},
	{"ncclmesh_relay_bytes_total", "counter", "Bytes that were relayed for other nodes."},
	{"ncclmesh_port_info", "gauge", "A port that is used, and a peer that it leads to."},
	{"ncclmesh_port_up", "gauge", "Whether a port is up."},
	{"ncclmesh_unreadable_processes", "gauge", "Processes whose counters could not be read: other users', older ones."},
}

// Metrics returns the names of all metrics.
func Metrics() (names []string) {
	for _, f := range families {
		names = append(names, f.name)
	}
	return names
}

// Exposition looks at all processes and writes what they count in Prometheus' text format. The troubles are those that
// could not be looked at, which it counts.
func Exposition(ctx context.Context, find func() ([]string, error)) (text []byte, troubles []Trouble, err error) {
	seen, troubles, err := lookAll(ctx, find)
	if err != nil {
		return nil, nil, err
	}
	x := newExposition()
	for i := range seen {
		x.process(&seen[i])
	}
	x.add("ncclmesh_unreadable_processes", nil, float64(len(troubles)))
	return x.bytes(), troubles, nil
}

// exposition gathers samples by metric and labels.
type exposition struct{ samples map[string]map[string]float64 }

func newExposition() *exposition {
	x := &exposition{map[string]map[string]float64{}}
	for _, f := range families {
		x.samples[f.name] = map[string]float64{}
	}
	return x
}

// labels are names and values by turns.
type labels []string

// add adds to a sample.
func (x *exposition) add(metric string, l labels, v float64) { x.samples[metric][l.String()] += v }

// set makes a sample one value, whoever says it.
func (x *exposition) set(metric string, l labels, v float64) { x.samples[metric][l.String()] = v }

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (l labels) String() string {
	if len(l) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(l); i += 2 {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		b.WriteString(l[i] + `="` + escape.Replace(strings.ToValidUTF8(l[i+1], "?")) + `"`)
	}
	return b.String() + "}"
}

// process adds what a process counts. Its id on the mesh, which no other ever has, names it.
func (x *exposition) process(l *look) {
	s := l.snap
	id := labels{"process", fmt.Sprintf("%x", s.Process.ID[:4])}
	info := append(slices.Clone(id), "pid", strconv.Itoa(l.pid()), "command", s.Process.Command, "node", s.Process.Node, "kind", s.Process.Kind.String(),
		"build", s.Process.Build, "vtable", strconv.Itoa(s.Vtable))
	x.set("ncclmesh_process_info", info, 1)
	x.set("ncclmesh_start_time_seconds", id, float64(s.Process.Started.UnixNano())/1e9)
	for _, c := range s.Conns {
		x.add("ncclmesh_connections", append(slices.Clone(id), "peer", c.Peer), 1)
	}
	x.add("ncclmesh_relay_circuits", id, float64(s.Relay.Circuits))
	x.add("ncclmesh_relay_bytes_total", id, float64(s.Relay.Bytes))
	for i := range s.Paths {
		x.way(s, &s.Paths[i], id)
	}
	for i := range s.Ports {
		if p := &s.Ports[i]; !behind(s, p) {
			x.port(s, p)
		}
	}
}

func (x *exposition) way(s *stats.Snapshot, w *stats.PathState, id labels) {
	device, num := deviceName(s, w), 0
	if p := s.Port(w.Port); p != nil && p.RDMA {
		device, num = p.Device, p.Num
	}
	l := append(slices.Clone(id), "peer", w.Peer, "cable", cableName(s, w), "device", device, "port", strconv.Itoa(num), "kind", w.Kind.String(), "through", w.Route)
	for direction, v := range map[string]stats.Volume{"sent": w.Sent, "received": w.Received} {
		d := append(slices.Clone(l), "direction", direction)
		x.add("ncclmesh_lane_bytes_total", d, float64(v.Bytes))
		x.add("ncclmesh_lane_messages_total", d, float64(v.Parts))
	}
	x.add("ncclmesh_lane_resent_bytes_total", l, float64(w.Sent.Resent))
	x.add("ncclmesh_lane_failures_total", l, float64(w.Failures))
	x.add("ncclmesh_lane_lost_total", l, float64(w.Lost))
	x.add("ncclmesh_lane_away_seconds_total", l, w.Outage.Seconds())
	up := 0.0
	if w.Up > 0 || x.samples["ncclmesh_lane_up"][l.String()] > 0 {
		up = 1
	}
	x.set("ncclmesh_lane_up", l, up)
}

// behind reports whether a port is the interface of an RDMA port of the process: both have one cable, which people count once.
func behind(s *stats.Snapshot, p *stats.Port) bool {
	return !p.RDMA && slices.ContainsFunc(s.Ports, func(o stats.Port) bool { return o.RDMA && o.Netdev == p.Netdev })
}

// port adds a port, which all processes of a node share.
func (x *exposition) port(s *stats.Snapshot, p *stats.Port) {
	device := p.Device
	if device == "" {
		device = p.Netdev
	}
	l := labels{"device", device, "port", strconv.Itoa(p.Num)}
	up := 0.0
	if p.Up {
		up = 1
	}
	x.set("ncclmesh_port_up", l, up)
	peers := []string{""}
	for _, w := range s.Paths {
		if w.Port == p.Number && !slices.Contains(peers, w.Peer) {
			peers = append(peers, w.Peer)
		}
	}
	if len(peers) > 1 {
		peers = peers[1:]
	}
	for _, peer := range peers {
		x.set("ncclmesh_port_info", append(slices.Clone(l), "netdev", p.Netdev, "cage", p.Cage, "peer", peer), 1)
	}
}

// bytes is all of it as text: families in their order, samples in that of their labels.
func (x *exposition) bytes() []byte {
	var b bytes.Buffer
	for _, f := range families {
		if len(x.samples[f.name]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		var all []string
		for l := range x.samples[f.name] {
			all = append(all, l)
		}
		slices.Sort(all)
		for _, l := range all {
			fmt.Fprintf(&b, "%s%s %s\n", f.name, l, strconv.FormatFloat(x.samples[f.name][l], 'g', -1, 64))
		}
	}
	return b.Bytes()
}
