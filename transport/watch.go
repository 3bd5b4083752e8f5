package transport

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/topology"
)

// settleTime lets a burst of changes end before they are looked at: a plugged
// cable brings a carrier, then addresses one by one, then GIDs.
const settleTime = 200 * time.Millisecond

// watch keeps the ports' addresses and links up to date, and with them what is
// known of paths, here and at the peers.
func (t *Transport) watch() {
	changed := make(chan struct{}, 1)
	err := topology.Watch(t.ctx.Done(), func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, t.caught)
	if err != nil {
		t.log.Warn("changes of addresses and links will not be noticed", "err", err)
		return
	}
	t.background(func() {
		for {
			select {
			case <-changed:
			case <-t.closing:
				return
			}
			settle := time.NewTimer(settleTime)
			select {
			case <-settle.C:
			case <-t.closing:
				settle.Stop()
				return
			}
			if err := t.guarded("look at the ports again", func() error { t.refresh(); return nil }); err != nil {
				t.log.Warn("cannot look at the ports again", "err", err)
			}
		}
	})
}

// refresh looks at the ports again. When one has changed, all paths are to be
// proved anew, and the peers are told.
func (t *Transport) refresh() {
	found, err := topology.Discover(topology.Source{Sysfs: t.opts.Sysfs})
	if err != nil {
		t.log.Warn("cannot look at the ports again", "err", err)
		return
	}
	any := false
	for _, p := range t.ports {
		for _, f := range [][]topology.Port{found.Ports, found.Plain} {
			for _, now := range f {
				if now.Device != p.Device || now.Num != p.Num || (p.Device == "" && now.Netdev != p.Netdev) {
					continue
				}
				was := p.now()
				changed, err := p.see(now)
				if err != nil {
					t.log.Warn("cannot look at a port again", "port", p.String(), "err", err)
				} else if changed {
					any = true
					t.log.Info(fmt.Sprintf("port %d changed: %s", p.index, p.now().news(was, t.opts.GIDs)))
				}
			}
		}
	}
	if !any {
		return
	}
	t.describe()
	t.mu.Lock()
	clear(t.known)
	t.mu.Unlock()
	for _, s := range t.ep.Sessions() {
		_ = s.Send(&handshake.Ports{Ports: *t.told.Load()}) // a dead session needs none
	}
}

// portsChanged takes note of what a peer says of its ports.
func (t *Transport) portsChanged(s *control.Session, m *handshake.Ports) {
	t.mu.Lock()
	t.peerPorts[s] = m.Ports
	if s.Dialled() { // paths are known of these
		delete(t.known, s.Peer().Process)
	}
	t.mu.Unlock()
}

// news is what people are told of a port that is not as it was: its line, and what
// has changed when that line does not show it.
func (s *portState) news(was *portState, pol topology.GIDPolicy) string {
	text := s.Summary(pol)
	if text != was.Summary(pol) {
		return text
	}
	var changes []string
	now, then := reflect.ValueOf(s.Port), reflect.ValueOf(was.Port)
	for i := range now.NumField() {
		if a, b := then.Field(i).Interface(), now.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			changes = append(changes, fmt.Sprintf("%s were %v and are %v", now.Type().Field(i).Name, a, b))
		}
	}
	if len(changes) == 0 {
		changes = []string{"what its device says of itself"}
	}
	return fmt.Sprintf("%s, as before, but %s", text, strings.Join(changes, "; "))
}
