package conn

import (
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
)

// statsEntry holds the counters of a connection, which other processes may read.
type statsEntry struct {
	// Count holds the connection's counters. The owner counts what this package does not see.
	// They may be read from any goroutine.
	Count *stats.Conn
	page  *stats.Page // nil if the connection is not published; guarded by Conn.mu
}

// Show publishes the connection on a page of the process.
//
// Preconditions: no other goroutine uses c.
func (c *Conn) Show(p *stats.Page) {
	if c.Probe {
		return
	}
	c.page = p
	c.Count = p.Connect(stats.Connection{ID: c.ID, Sending: c.Sending, Peer: c.Session.Name(), Process: c.Session.Peer().Process})
}

// Hide removes the connection and its lanes from the page. Further calls do nothing.
func (c *Conn) Hide() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == nil {
		return
	}
	for _, l := range c.lanes {
		c.page.RemoveLane(l.Lane)
	}
	c.page.Disconnect(c.Count)
	c.page = nil
}

// showLane publishes a lane that comes into service.
//
// Preconditions: c is locked.
func (c *Conn) showLane(l *lane.Lane) {
	if c.page != nil {
		l.Lane = c.page.AddLane(c.Count, int(l.Index), pathStats(l))
	}
}

// hideLane removes a lane from the page.
//
// Preconditions: c is locked.
func (c *Conn) hideLane(l *lane.Lane) {
	if c.page != nil {
		c.page.RemoveLane(l.Lane)
	}
}

// countDrain counts a lane that goes out of service before the connection ends. failed says that the lane
// failed, and is not removed for a better path.
//
// Preconditions: c is locked.
func (c *Conn) countDrain(l *lane.Lane, failed bool) {
	c.Count.Failures.Add(1)
	if c.page != nil {
		c.page.LaneDown(l.Lane, failed)
	}
}

// publish writes the error that ended the connection to the page of the process.
func (c *Conn) publish(err error) {
	if c.env.Page != nil && !c.Probe {
		c.env.Page.AddNotice(err.Error())
	}
}

// pathStats returns the path of a lane in the form that the page has.
func pathStats(l *lane.Lane) stats.Path {
	w := stats.Path{
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
