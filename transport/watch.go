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

// settleTime is how long to wait after a change, so that a burst of changes ends before the ports are read: a plugged
// cable first brings a carrier, then addresses one by one, then GIDs.
const settleTime = 200 * time.Millisecond

// watch keeps the ports' addresses and links up to date, and so the paths known here and at the peers.
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

// linkChanged records at once that an interface has gained or lost its carrier. It notifies the connections of a port
// that has lost it. When a port regains its carrier, it also notifies the connections of all other ports without one,
// because their lanes were kept while no port had a carrier.
func (t *Transport) linkChanged(netdev string, carrier bool) {
	var down []lane.Port
	restored := false
	for _, p := range t.ports {
		if p.Now().Netdev != netdev {
			continue
		}
		was := p.NoCarrier()
		p.Carrier(carrier)
		switch now := p.NoCarrier(); {
		case now:
			down = append(down, p)
			t.overlay.PortDown(p.Index(), fmt.Errorf("%v went down", p.Now()))
		case was:
			restored = true
		}
	}
	for _, p := range t.ports {
		if restored && p.NoCarrier() && !slices.Contains(down, p) {
			down = append(down, p)
		}
	}
	for _, b := range t.connsWhere(all) {
		for _, p := range down {
			b.PortDown(p)
			if c := t.overlay.CircuitPort(p); c != p { // the circuit port of the same interface
				b.PortDown(c)
			}
		}
	}
}

// refresh reads the ports again. If one has changed, all paths have to be validated again, and the peers are notified.
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
			} else if changed && (was.Usable() || p.Now().Usable()) { // a change of a port that stays down concerns no peer
				any = true
				t.log.Info(fmt.Sprintf("port %d changed: %s", i, changeText(p.Now(), was, t.opts.GIDs)))
			}
		}
	}
	if !any {
		return
	}
	if err := t.copier.Renew(); err != nil {
		t.log.Debug("an adapter cannot copy within this process", "err", err)
	}
	t.describe()
	t.paths.Changed()
	t.overlay.PortsChanged()
	for _, s := range t.ep.Sessions() {
		_ = s.Send(&handshake.Ports{Ports: *t.localPorts.Load()}) // the error means that the session has ended
		if !s.Neighbour() {
			t.repair(s)
		}
	}
}

// changeText returns the log text for a port that has changed: its summary, and the changed fields if the summary is
// the same as before.
func changeText(now, was *topology.Port, pol topology.GIDPolicy) string {
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
