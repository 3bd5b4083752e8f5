package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

func (s *Snapshot) port(_ int, c cells) error {
	s.Ports = append(s.Ports, Port{
		Number: c.in(0, math.MaxUint8), Num: c.in(1, math.MaxUint8), Up: c.u(2) > 0, RDMA: c.u(3) > 0,
		LinkMbps: c.in(4, math.MaxInt32), PCIMbps: c.in(5, math.MaxInt32),
		Device: c.text(8, 8), Netdev: c.text(16, 8), Cage: c.text(24, 8), Connector: c.text(32, 8), State: c.text(40, 8),
	})
	return nil
}

func (s *Snapshot) path(i int, c cells) error {
	w := PathState{
		Path: Path{
			Port: c.in(0, math.MaxUint8), PeerPort: c.in(1, math.MaxUint8), Kind: Carrier(c.in(2, math.MaxUint8)), Tier: c.in(3, math.MaxInt32),
			Peer: c.text(16, 8), PeerDevice: c.text(24, 8), PeerNetdev: c.text(32, 8), Route: c.text(40, 16),
		},
		Up: c.in(4, math.MaxInt32), Down: c.time(5), Lost: c.u(6), Failures: c.u(7), Outage: c.duration(8),
		Received: c.volume(9), Sent: c.volume(12),
	}
	if w.Kind < 1 || w.Kind > knownCarriers {
		return fmt.Errorf("path %d is of %v", i, w.Kind)
	}
	s.Paths = append(s.Paths, w)
	return nil
}

// conn decodes a connection. at is 1 + the index of its slot.
func (s *Snapshot) conn(at uint64, c cells, conns map[uint64]int) error {
	if c.u(0) != shown {
		return nil
	}
	conns[at] = len(s.Conns)
	s.Conns = append(s.Conns, ConnState{
		Connection: Connection{ID: uint32(c.u(1)), Sending: c.u(2) > 0, Process: c.id(9), Peer: c.text(16, 8)},
		Bytes:      c.u(3), Messages: c.u(4), Waits: c.u(5), Resent: c.u(6), Failures: c.u(7), Outage: c.duration(8),
	})
	return nil
}

// lane decodes a lane and adds its traffic to its path's.
func (s *Snapshot) lane(c cells, conns map[uint64]int) error {
	path := c.u(3)
	if path == 0 {
		return nil
	}
	if path > uint64(len(s.Paths)) {
		return fmt.Errorf("a lane uses path %d of %d", path, len(s.Paths))
	}
	at, ok := conns[c.u(4)]
	if !ok {
		at = -1
	}
	l := LaneState{Volume: c.volume(0), Conn: at, Path: int(path) - 1, Index: c.in(5, math.MaxUint8), Up: c.u(6) == laneUp, Since: c.time(7)}
	s.Lanes = append(s.Lanes, l)
	if w := &s.Paths[l.Path]; c.u(9) > 0 {
		w.Sent = w.Sent.plus(l.Volume)
	} else {
		w.Received = w.Received.plus(l.Volume)
	}
	return nil
}

// notice decodes a notice, whose text may be empty.
func (s *Snapshot) notice(_ int, c cells) error {
	s.Notices = append(s.Notices, Notice{number: c.u(0), At: c.time(1), Text: c.text(8, 56)})
	return nil
}

// sortNotices sorts the notices by number.
func (s *Snapshot) sortNotices() {
	slices.SortStableFunc(s.Notices, func(a, b Notice) int { return cmp.Compare(a.number, b.number) })
}
