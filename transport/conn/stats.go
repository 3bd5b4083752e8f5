package conn

import (
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
)

// shown is what other processes see of a connection.
type statsEntry struct {
	// Count counts for the connection. Its owner adds to it, but for what only this package
	// knows; anybody may read it.
	Count *stats.Conn
	page  *stats.Page // nil where the connection is on none; guarded by Conn.mu
}

// Show puts the connection on the process's page. Nobody else may know it yet.
func (c *Conn) Show(p *stats.Page) {
	if c.Probe {
		return
	}
	c.page = p
	c.Count = p.Connect(stats.Connection{ID: c.ID, Sending: c.Sending, Peer: c.Session.Name(), Process: c.Session.Peer().Process})
}

// Hide takes it off again, with its lanes. It may be called again.
func (c *Conn) Hide() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == nil {
		return
	}
	for _, l := range c.lanes {
		c.page.Remove(l.Lane)
	}
	c.page.Disconnect(c.Count)
	c.page = nil
}

// showLane shows a lane that is put into service.
//
// Preconditions: c is locked.
func (c *Conn) showLane(l *lane.Lane) {
	if c.page != nil {
		l.Lane = c.page.Serve(c.Count, int(l.Index), pathStats(l))
	}
}

// hideLane takes a lane off that is no more.
//
// Preconditions: c is locked.
func (c *Conn) hideLane(l *lane.Lane) {
	if c.page != nil {
		c.page.Remove(l.Lane)
	}
}

// countDrain counts a lane that goes out of service before the connection ends: failed
// says that it is for a fault of its own.
//
// Preconditions: c is locked.
func (c *Conn) countDrain(l *lane.Lane, failed bool) {
	c.Count.Failures.Add(1)
	if c.page != nil {
		c.page.Leave(l.Lane, failed)
	}
}

// publish keeps for people what has become of the connection.
func (c *Conn) publish(err error) {
	if c.env.Page != nil && !c.Probe {
		c.env.Page.Say(err.Error())
	}
}

// shownWay is what a lane leads over, as the page has it.
func pathStats(l *lane.Lane) stats.Way {
	w := stats.Way{
		Peer: l.Conn.Session.Name(), Port: int(l.Port.Index()), PeerPort: int(l.Peer.Index),
		PeerDevice: l.Peer.Device, PeerNetdev: l.Peer.Netdev, Tier: l.Tier,
	}
	switch {
	case l.Route != nil:
		w.Kind, w.Route = stats.Relayed, l.Route.Through()
	case l.Port.Kind() == lane.Circuit:
		w.Kind = stats.Relayed
	case l.Port.Kind() == lane.TCP:
		w.Kind = stats.TCP
	default:
		w.Kind = stats.RDMA
	}
	return w
}
