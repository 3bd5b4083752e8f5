package status

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"ncclmesh/transport/stats"
)

// Schema is the version of a Report.
const Schema = "ncclmesh.status/1"

// A Report is what was seen of all processes at one moment.
type Report struct {
	Schema    string    `json:"schema"`
	Time      time.Time `json:"time"`
	Processes []Process `json:"processes"`
	Errors    []Trouble `json:"errors"`
}

// A Trouble is a process that could not be looked at.
type Trouble struct {
	Name  string `json:"name"`
	PID   int    `json:"pid,omitempty"`
	User  string `json:"user,omitempty"`
	Error string `json:"error"`
}

func (t Trouble) String() string {
	name := t.Name
	switch {
	case t.PID > 0:
		name = fmt.Sprintf("pid %d of user %s", t.PID, t.User)
	case t.User != "":
		name = fmt.Sprintf("%s of user %s", t.Name, t.User)
	}
	return name + ": " + t.Error
}

// A Process is a job's, or a relay.
type Process struct {
	PID         int          `json:"pid"`
	Command     string       `json:"command"`
	Kind        string       `json:"kind"`
	Node        string       `json:"node"`
	Build       string       `json:"build"`
	Protocol    int          `json:"protocol"`
	Vtable      int          `json:"vtable"` // 0 while it is not known
	ID          string       `json:"id"`
	Started     time.Time    `json:"started"`
	Peers       int          `json:"peers"`
	Ports       []Port       `json:"ports"`
	Cables      []Cable      `json:"cables"`
	Connections []Connection `json:"connections"`
	Relay       Relay        `json:"relay"`
	Words       []Word       `json:"words"`
	More        More         `json:"more"`
}

type Port struct {
	Device    string `json:"device"`
	Port      int    `json:"port"`
	Netdev    string `json:"netdev"`
	Cage      string `json:"cage"`
	Connector string `json:"connector"`
	State     string `json:"state"`
	Up        bool   `json:"up"`
	LinkMbps  int    `json:"link_mbps"`
	PCIeMbps  int    `json:"pcie_mbps"`
	Lanes     int    `json:"lanes"` // of connections, in service
}

// A Cable is all ways to a peer over the ports of one connector, of one kind.
type Cable struct {
	Peer           string  `json:"peer"`
	Cable          string  `json:"cable"`
	Kind           string  `json:"kind"`
	Through        string  `json:"through,omitempty"`
	Up             int     `json:"ways_up"`
	SentPerSec     float64 `json:"sent_bytes_per_second"`
	ReceivedPerSec float64 `json:"received_bytes_per_second"`
	Lost           uint64  `json:"lost"`
	State          string  `json:"state"`
	Ways           []Way   `json:"ways"`
	tier           int
}

type Way struct {
	Device      string  `json:"device"` // of RDMA, "" where TCP carries it
	Port        int     `json:"port"`
	Netdev      string  `json:"netdev"`
	PeerDevice  string  `json:"peer_device"`
	PeerNetdev  string  `json:"peer_netdev"`
	Lanes       int     `json:"lanes"` // in service
	Sent        Volume  `json:"sent"`
	Received    Volume  `json:"received"`
	Failures    uint64  `json:"failures"`
	Lost        uint64  `json:"lost"`
	AwaySeconds float64 `json:"away_seconds"`
	DownSeconds float64 `json:"down_seconds"`
	down        bool
	ends        ends
}

type Volume struct {
	Bytes    uint64 `json:"bytes"`
	Messages uint64 `json:"messages"` // or parts of them
	Resent   uint64 `json:"resent_bytes"`
}

type Connection struct {
	ID          uint32  `json:"id"`
	Peer        string  `json:"peer"`
	Process     string  `json:"peer_process"`
	Sending     bool    `json:"sending"`
	Bytes       uint64  `json:"bytes"`
	Messages    uint64  `json:"messages"`
	Waits       uint64  `json:"waits"`
	Resent      uint64  `json:"resent_bytes"`
	Failures    uint64  `json:"failures"`
	AwaySeconds float64 `json:"away_seconds"`
	Lanes       []Lane  `json:"lanes"`
}

type Lane struct {
	Index      int       `json:"index"`
	Device     string    `json:"device"`
	PeerDevice string    `json:"peer_device"`
	Kind       string    `json:"kind"`
	Through    string    `json:"through,omitempty"`
	Up         bool      `json:"up"`
	Since      time.Time `json:"since"`
	Volume
}

type Relay struct {
	Circuits uint64 `json:"circuits"`
	Carried  uint64 `json:"carried"`
	Failed   uint64 `json:"failed"`
	Bytes    uint64 `json:"bytes"`
}

type Word struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// More is what the page of the process has no room for.
type More struct {
	Connections uint64 `json:"connections"`
	Lanes       uint64 `json:"lanes"`
	Ways        bool   `json:"ways"`
}

// processOf is what two looks at a process say, of which the first may be nil: then there are no rates.
func processOf(before *stats.Snapshot, l *look) Process {
	now := l.snap
	p := Process{
		PID: l.pid(), Command: now.Process.Command, Kind: now.Process.Kind.String(), Node: now.Process.Node, Build: now.Process.Build,
		Protocol: now.Process.Protocol, Vtable: now.Vtable, ID: fmt.Sprintf("%x", now.Process.ID), Started: now.Process.Started,
		Ports: []Port{}, Cables: cablesOf(before, now), Connections: connectionsOf(now), Words: []Word{},
		Relay: Relay(now.Relay), More: More{now.MoreConns, now.MoreLanes, now.MorePaths},
	}
	lanes, peers := map[int]int{}, map[string]bool{}
	for _, w := range now.Paths {
		lanes[w.Port] += w.Up
	}
	for _, c := range now.Conns {
		peers[c.Peer] = true
	}
	p.Peers = len(peers)
	for _, o := range now.Ports {
		p.Ports = append(p.Ports, Port{o.Device, o.Num, o.Netdev, o.Cage, o.Connector, o.State, o.Up, o.LinkMbps, o.PCIMbps, lanes[o.Number]})
	}
	for _, w := range now.Notices {
		p.Words = append(p.Words, Word{w.At, w.Text})
	}
	return p
}

func connectionsOf(s *stats.Snapshot) []Connection {
	all := []Connection{}
	for _, c := range s.Conns {
		all = append(all, Connection{
			ID: c.ID, Peer: c.Peer, Process: fmt.Sprintf("%x", c.Process), Sending: c.Sending, Bytes: c.Bytes, Messages: c.Messages,
			Waits: c.Waits, Resent: c.Resent, Failures: c.Failures, AwaySeconds: c.Outage.Seconds(), Lanes: []Lane{},
		})
	}
	for _, l := range s.Lanes {
		if l.Conn < 0 {
			continue
		}
		w := &s.Paths[l.Path]
		c := &all[l.Conn]
		c.Lanes = append(c.Lanes, Lane{l.Index, deviceName(s, w), peerName(w), w.Kind.String(), w.Route, l.Up, l.Since, volumeOf(l.Volume)})
	}
	return all
}

// ends are the ports that a way joins.
type ends struct {
	peer        string
	here, there int
}

func endsOf(w *stats.PathState) ends { return ends{w.Peer, w.Port, w.PeerPort} }

// cablesOf groups the ways to each peer by the connector here.
func cablesOf(before, now *stats.Snapshot) []Cable {
	type key struct {
		peer, cage string
		kind       stats.Carrier
	}
	all, at := []Cable{}, map[key]int{}
	for i := range now.Paths {
		w := &now.Paths[i]
		k := key{w.Peer, "", w.Kind}
		if p := now.Port(w.Port); p != nil {
			k.cage = p.Cage
		}
		n, ok := at[k]
		if !ok {
			n = len(all)
			at[k] = n
			all = append(all, Cable{Peer: w.Peer, Cable: cableName(now, w), Kind: k.kind.String()})
		}
		all[n].add(before, now, w)
	}
	best := map[string]int{} // tier of what each peer is reached over
	for _, c := range all {
		if b, ok := best[c.Peer]; c.Up > 0 && (!ok || c.tier < b) {
			best[c.Peer] = c.tier
		}
	}
	all = slices.DeleteFunc(all, func(c Cable) bool { // a way out that is needed no more
		b, ok := best[c.Peer]
		return ok && c.Up == 0 && c.tier > b
	})
	for i := range all {
		all[i].State = all[i].state()
	}
	slices.SortStableFunc(all, func(a, b Cable) int { return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Cable, b.Cable)) })
	return all
}

// add adds a way to its cable. What goes between two ports is one way, whichever end began it.
func (c *Cable) add(before, now *stats.Snapshot, w *stats.PathState) {
	i := slices.IndexFunc(c.Ways, func(y Way) bool { return y.ends == endsOf(w) })
	if i < 0 {
		i = len(c.Ways)
		c.Ways = append(c.Ways, Way{PeerDevice: w.PeerDevice, PeerNetdev: w.PeerNetdev, ends: endsOf(w)})
		if p := now.Port(w.Port); p != nil {
			c.Ways[i].Device, c.Ways[i].Port, c.Ways[i].Netdev = p.Device, p.Num, p.Netdev
		}
	}
	y := &c.Ways[i]
	if y.Lanes == 0 && w.Up > 0 {
		c.Up++
	}
	y.Lanes += w.Up
	y.Sent, y.Received = y.Sent.plus(w.Sent), y.Received.plus(w.Received)
	y.Failures += w.Failures
	y.Lost += w.Lost
	y.AwaySeconds += w.Outage.Seconds()
	if since, down := now.Down(w); down {
		y.DownSeconds = max(y.DownSeconds, now.At.Sub(since).Seconds())
		y.down = true
	}
	if y.Lanes > 0 {
		y.down, y.DownSeconds = false, 0
	}
	c.Lost += w.Lost
	c.Through = cmp.Or(c.Through, w.Route)
	c.tier = max(c.tier, w.Tier)
	c.rate(before, now, w)
}

// rate adds what went over a way between two looks.
func (c *Cable) rate(before, now *stats.Snapshot, w *stats.PathState) {
	if before == nil || !now.At.After(before.At) {
		return
	}
	var was stats.PathState
	if i := slices.IndexFunc(before.Paths, func(b stats.PathState) bool { return b.Same(w.Path) }); i >= 0 {
		was = before.Paths[i]
	}
	seconds := now.At.Sub(before.At).Seconds()
	c.SentPerSec += since(was.Sent.Bytes, w.Sent.Bytes) / seconds
	c.ReceivedPerSec += since(was.Received.Bytes, w.Received.Bytes) / seconds
}

// since is how far a counter has come. The counters of one that ended between may be missing from the second look.
func since(was, now uint64) float64 { return float64(max(was, now) - was) }

// state says in words how a cable is.
func (c *Cable) state() string {
	for _, w := range c.Ways {
		if w.down {
			return fmt.Sprintf("%s down %s", cmp.Or(w.Netdev, w.Device), clock(w.DownSeconds))
		}
	}
	switch {
	case c.Up == 0:
		return "not in use"
	case c.Through != "":
		return "ok, through " + c.Through
	}
	return "ok"
}

func volumeOf(v stats.Volume) Volume { return Volume{v.Bytes, v.Parts, v.Resent} }

func (v Volume) plus(o stats.Volume) Volume {
	return Volume{v.Bytes + o.Bytes, v.Messages + o.Parts, v.Resent + o.Resent}
}

// deviceName is the port of a way here, as people know it: by its interface.
func deviceName(s *stats.Snapshot, w *stats.PathState) string {
	p := s.Port(w.Port)
	if p == nil {
		return fmt.Sprintf("port %d", w.Port)
	}
	return cmp.Or(p.Netdev, p.Device)
}

func peerName(w *stats.PathState) string { return cmp.Or(w.PeerNetdev, w.PeerDevice) }

// connectorIn finds the connector that systemd has put into an interface's name: enp1s0f0np0 is at p0.
var connectorIn = regexp.MustCompile(`n(p\d+)$`)

// cableName is both ends of a cable. Of the peer's the interface's name has to do: what its driver calls the connector
// nobody tells.
func cableName(s *stats.Snapshot, w *stats.PathState) string {
	here, there := deviceName(s, w), peerName(w)
	if p := s.Port(w.Port); p != nil && p.Connector != "" {
		here = p.Connector
	}
	if m := connectorIn.FindStringSubmatch(there); m != nil {
		there = m[1]
	}
	return here + "═" + there
}
