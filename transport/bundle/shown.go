package bundle

import (
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
)

// shown is what other processes see of a connection.
type shown struct {
	// Count counts for the connection. Its half's owner adds to it, but for what only the
	// bundle knows; anybody may read it.
	Count *stats.Conn
	page  *stats.Page // nil where the connection is on none; guarded by Bundle.mu
}

// Show puts the connection on the process's page. Nobody else may know it yet.
func (b *Bundle) Show(p *stats.Page) {
	if b.Trial {
		return
	}
	b.page = p
	b.Count = p.Connect(stats.Connection{ID: b.ID, Sending: b.Sending, Peer: b.Session.Name(), Process: b.Session.Peer().Process})
}

// Hide takes it off again, with its lanes. It may be called again.
func (b *Bundle) Hide() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.page == nil {
		return
	}
	for _, l := range b.lanes {
		b.page.Remove(l.Lane)
	}
	b.page.Disconnect(b.Count)
	b.page = nil
}

// showLane shows a lane that is put into service.
//
// Preconditions: b is locked.
func (b *Bundle) showLane(l *lane.Lane) {
	if b.page != nil {
		l.Lane = b.page.Serve(b.Count, int(l.Index), shownWay(l))
	}
}

// hideLane takes a lane off that is no more.
//
// Preconditions: b is locked.
func (b *Bundle) hideLane(l *lane.Lane) {
	if b.page != nil {
		b.page.Remove(l.Lane)
	}
}

// leaveShown counts a lane that goes out of service before the connection ends: failed
// says that it is for a fault of its own.
//
// Preconditions: b is locked.
func (b *Bundle) leaveShown(l *lane.Lane, failed bool) {
	b.Count.Failures.Add(1)
	if b.page != nil {
		b.page.Leave(l.Lane, failed)
	}
}

// say keeps for people what has become of the connection.
func (b *Bundle) say(err error) {
	if b.env.Page != nil && !b.Trial {
		b.env.Page.Say(err.Error())
	}
}

// shownWay is what a lane leads over, as the page has it.
func shownWay(l *lane.Lane) stats.Way {
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
