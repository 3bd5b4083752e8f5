package transport

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// settleTime lets a burst of changes end before they are looked at: a plugged
// cable brings a carrier, then addresses one by one, then GIDs.
const settleTime = 200 * time.Millisecond

// watch keeps the ports' addresses and links up to date, and with them what is
// known of paths, here and at the peers.
func (t *Transport) watch() {
	changed := make(chan struct{}, 1)
	err := t.opts.Machine.Source.Watch(t.ctx.Done(), func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, t.linkChanged, t.caught)
	if err != nil {
		t.log.Warn("changes of addresses and links will not be noticed", "err", err)
		return
	}
	t.background(func() {
		for {
			select {
			case <-changed:
			case <-t.ctx.Done():
				return
			}
			settle := t.env.Clock.NewTimer(settleTime)
			select {
			case <-settle.C:
			case <-t.ctx.Done():
				settle.Stop()
				return
			}
			if err := t.guarded("look at the ports again", func() error { t.refresh(); return nil }); err != nil {
				t.log.Warn("cannot read the ports again, and keeps their last known state", "err", err)
			}
		}
	})
}

// linkChanged notes that an interface has a carrier or has none, at once: what else has
// changed may settle. It tells the connections of a port that has lost it; and, as lanes over
// such ports were spared while no port had one, of all of those when another has it again.
func (t *Transport) linkChanged(netdev string, carrier bool) {
	var down []lane.Port
	lit := false
	for _, p := range t.ports {
		if p.Now().Netdev != netdev {
			continue
		}
		was := p.NoCarrier()
		p.Carrier(carrier)
		switch now := p.NoCarrier(); {
		case now:
			down = append(down, p)
			if t.relay != nil {
				t.relay.PortDown(p.Index(), fmt.Errorf("%v went down", p.Now()))
			}
		case was:
			lit = true
		}
	}
	for _, p := range t.ports {
		if lit && p.NoCarrier() && !slices.Contains(down, p) {
			down = append(down, p)
		}
	}
	for _, b := range t.connsWhere(all) {
		for _, p := range down {
			b.PortDown(p)
			if c := t.over[p]; c != nil { // the same, to circuits
				b.PortDown(c)
			}
		}
	}
}

// refresh looks at the ports again. When one has changed, all paths are to be
// proved anew, and the peers are told.
func (t *Transport) refresh() {
	found, err := t.opts.Machine.Source.Discover()
	if err != nil {
		t.log.Warn("cannot read the ports again, and keeps their last known state", "err", err)
		return
	}
	any := false
	for i, p := range t.ports {
		was := p.Now()
		for _, now := range slices.Concat(found.Ports, found.Plain) {
			if now.Device != was.Device || now.Num != was.Num || was.Device == "" && now.Netdev != was.Netdev {
				continue
			}
			changed, err := p.See(now)
			if err != nil {
				t.log.Warn("cannot look at a port again", "port", was.String(), "err", err)
			} else if changed && (was.Usable() || p.Now().Usable()) { // of one that stays down nobody need know more
				any = true
				t.log.Info(fmt.Sprintf("port %d changed: %s", i, news(p.Now(), was, t.opts.GIDs)))
			}
		}
	}
	if !any {
		return
	}
	t.describe()
	t.paths.Changed()
	if t.hail != nil {
		t.hail.Changed()
		t.mesh.Changed()
	}
	for _, s := range t.ep.Sessions() {
		_ = s.Send(&handshake.Ports{Ports: *t.told.Load()}) // a dead session needs none
		if !s.Neighbour() {
			t.mend(s)
		}
	}
}

// news is what people are told of a port that is not as it was: its line, and what
// has changed when that line does not show it.
func news(now, was *topology.Port, pol topology.GIDPolicy) string {
	text := now.Summary(pol)
	if text != was.Summary(pol) {
		return text
	}
	var changes []string
	after, before := reflect.ValueOf(*now), reflect.ValueOf(*was)
	for i := range after.NumField() {
		if a, b := before.Field(i).Interface(), after.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			changes = append(changes, fmt.Sprintf("%s were %v and are %v", after.Type().Field(i).Name, a, b))
		}
	}
	if len(changes) == 0 {
		changes = []string{"what its device reports"}
	}
	return fmt.Sprintf("%s, as before, but %s", text, strings.Join(changes, "; "))
}
