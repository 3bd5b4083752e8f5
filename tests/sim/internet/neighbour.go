package internet

import (
	"fmt"
	"net/netip"
	"time"
)

// A neighbour is whom an interface knows, or looks for, at an address of its link.
type neighbour struct {
	at    *Interface // nil while it is looked for
	asked int
	wait  []*packet // what waits for it
}

const (
	resolveTries = 3           // questions in vain, after which what waits has failed
	resolveEvery = time.Second // between two of them
	resolveQueue = 64          // packets that wait at most
)

// resolve sends a packet to whoever has its address on the link, once that is known.
// Preconditions: n.mu is locked.
func (i *Interface) resolve(p *packet) {
	k := i.nearby[p.dst.WithZone("")]
	if k == nil {
		k = &neighbour{}
		i.nearby[p.dst.WithZone("")] = k
		k.wait = append(k.wait, p)
		i.ask(p.dst.WithZone(""), p.src, k)
		return
	}
	switch {
	case k.at != nil:
		i.line.send(p, k.at, nil)
	case len(k.wait) < resolveQueue:
		k.wait = append(k.wait, p)
	default:
		i.host.net.count("too many wait for a neighbour")
	}
}

// ask asks the link who has an address, and gives up after a while.
func (i *Interface) ask(addr, src netip.Addr, k *neighbour) {
	n := i.host.net
	k.asked++
	i.line.send(&packet{kind: kindNeighbour, what: fmt.Sprintf("who has %v", addr), size: 28, source: i.line.source,
		land: func(at *Interface, _ int) { at.answer(addr, src, i) }}, nil, nil)
	n.after(i.line.source, resolveEvery, fmt.Sprintf("look for %v", addr), func() {
		switch {
		case i.nearby[addr] != k || k.at != nil:
		case k.asked < resolveTries:
			i.ask(addr, src, k)
		default:
			delete(i.nearby, addr)
			n.count("no neighbour")
			for _, p := range k.wait {
				if p.failed != nil {
					p.failed()
				}
			}
		}
	})
}

// answer tells an interface that its question was heard, if this host has the address: for IPv4 at any interface.
func (i *Interface) answer(addr, src netip.Addr, to *Interface) {
	if !i.has(addr) && (addr.Is6() || i.host.owner(addr) == nil || addr.IsLoopback()) {
		return
	}
	i.learn(src, to)
	i.line.send(&packet{kind: kindNeighbour, what: fmt.Sprintf("%v is here", addr), size: 28, source: i.line.source,
		land: func(at *Interface, _ int) { at.learn(addr, i) }}, to, nil)
}

// learn takes down who has an address, and sends what waits for it.
func (i *Interface) learn(addr netip.Addr, at *Interface) {
	addr = addr.WithZone("")
	k := i.nearby[addr]
	if k == nil {
		i.nearby[addr] = &neighbour{at: at}
		return
	}
	if k.at != nil {
		return // the first answer counts
	}
	k.at = at
	for _, p := range k.wait {
		i.line.send(p, at, nil)
	}
	k.wait = nil
}

// forget forgets whom the interface knows. Those who are looked for it still looks for.
func (i *Interface) forget() {
	for addr, k := range i.nearby {
		if k.at != nil {
			delete(i.nearby, addr)
		}
	}
}
