package transport

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// Values of Options.Transport.
const (
	TransportAuto = "auto" // RDMA between two nodes where it works, else TCP
	TransportRDMA = "rdma" // RDMA only
	TransportTCP  = "tcp"  // TCP only
)

// openPlain adds the network interfaces as ports for TCP, after the RDMA ports: first those that are usable, then those
// that may come up.
func (t *Transport) openPlain(n *topology.Node) error {
	o := tcp.Options{Check: t.opts.TCPCheck, Silence: t.env.Clock.Scaled(t.opts.LaneWait / 2), Data: t.data, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Circuits: t.overlay}
	usable, waiting := t.selectPlain(n)
	all := slices.Concat(usable, waiting)
	for _, p := range all[:min(len(all), handshake.MaxPorts-len(t.ports))] {
		t.ports = append(t.ports, tcp.NewPort(p, uint8(len(t.ports)), o))
	}
	if len(usable) == 0 {
		return fmt.Errorf("%w: %s", fault.ErrNoPorts, t.opts.noInterface(n.Plain))
	}
	return nil
}

// selectPlain returns the network interfaces that the configuration selects for TCP: those that are usable, and those
// that may come up.
func (t *Transport) selectPlain(n *topology.Node) (usable, waiting []topology.Port) {
	usable, waiting = t.opts.allowed(t.opts.LaneIfs.Select(n.Plain)), t.opts.allowed(t.opts.LaneIfs.Waiting(n.Plain))
	radio := func(p topology.Port) bool { return p.Wireless }
	if wired := slices.DeleteFunc(slices.Clone(usable), radio); len(wired) > 0 {
		usable = wired
	}
	return usable, slices.DeleteFunc(waiting, radio)
}

// awaitPorts returns what discover returns. It calls discover again while all the ports that the configuration selects
// are down and one of them may yet come up, for LaneWait at most, because a cable may be out just now. A process
// that only examines the mesh does not wait.
func (t *Transport) awaitPorts(discover func() (*topology.Node, error)) (*topology.Node, error) {
	var outage clock.Watch
	for logged := false; ; {
		n, err := discover()
		if err != nil {
			return nil, err
		}
		down := t.allDown(n)
		if len(down) == 0 || t.opts.Observes || outage.Look() >= t.env.Clock.Scaled(t.opts.LaneWait) {
			return n, nil
		}
		if !logged {
			t.log.Warn(fmt.Sprintf("no port is up: waiting for one of %s for up to %v (NCCL_MESH_LANE_WAIT); check their cables", path.PortNames(down), t.opts.LaneWait))
			logged = true
		}
		t.env.Clock.Sleep(clock.LookEvery)
	}
}

// allDown returns the ports that the configuration selects and that may come up; none when one is up.
func (t *Transport) allDown(n *topology.Node) (down []topology.Port) {
	if t.opts.Transport != TransportTCP {
		for _, p := range n.Ports {
			switch {
			case !t.opts.HCA.Match(p.Device, p.Num):
			case p.Active:
				return nil
			default:
				down = append(down, p)
			}
		}
	}
	if t.opts.Transport != TransportRDMA {
		usable, waiting := t.selectPlain(n)
		if len(usable) > 0 {
			return nil
		}
		down = append(down, waiting...)
	}
	return down
}

// allowed removes the interfaces that the control plane may not use, because what NCCL_SOCKET_IFNAME excludes is
// excluded for lanes too.
func (o *Options) allowed(plain []topology.Port) []topology.Port {
	if o.Interfaces.Named() {
		return plain
	}
	return slices.DeleteFunc(slices.Clone(plain), func(p topology.Port) bool { return !o.Interfaces.Match(p.Netdev) })
}

// openPorts opens the ports that the configuration selects: first RDMA ports, then interfaces for TCP. A port that is
// down is used once it comes up. It fails if no port can be used now.
func (t *Transport) openPorts(n *topology.Node) error {
	var noRDMA, noTCP error
	if err := t.checkFilters(n); err != nil {
		return err
	}
	if t.opts.Transport == TransportTCP {
		noRDMA = errors.New("NCCL_MESH_TRANSPORT is tcp, which rules RDMA out")
	} else {
		noRDMA = t.openDevices(n)
	}
	if t.opts.Transport == TransportRDMA {
		noTCP = errors.New("NCCL_MESH_TRANSPORT is rdma, which rules TCP out")
	} else {
		noTCP = t.openPlain(n)
	}
	switch {
	case noRDMA != nil && noTCP != nil:
		return fmt.Errorf("%w; %w", noRDMA, noTCP)
	case noRDMA != nil && len(n.Ports) > 0:
		t.log.Warn(fmt.Sprintf("TCP is used, slower than RDMA, although there is %s: %v", path.PortNames(n.Ports), fault.OneLine(noRDMA)))
	case noRDMA != nil:
		t.log.Info("TCP is used, as there is no RDMA device")
	}
	t.useDataDirect()
	t.describe()
	var waiting []string
	for i, p := range t.ports {
		if what, remedy := p.Now().Absent(); what != "" {
			t.log.Warn(what + ": " + remedy + "; until then only the default GIDs of its adapter can be tried")
		}
		if p.Now().Usable() {
			t.log.Info(fmt.Sprintf("port %d: %s", i, p.Now().Summary(t.opts.GIDs)))
		} else {
			waiting = append(waiting, p.Now().String())
		}
	}
	if len(waiting) > 0 {
		t.log.Info("used as well once they are up and have an address: " + strings.Join(waiting, ", "))
	}
	return nil
}

// selectDevices returns the RDMA ports that the configuration selects. It also returns an error if none of them is up.
func (t *Transport) selectDevices(n *topology.Node) (selected []topology.Port, err error) {
	selected = t.opts.HCA.Select(n.Ports)
	var seen []string
	if left := without(n.Ports, selected); len(left) > 0 {
		seen = append(seen, fmt.Sprintf("NCCL_IB_HCA=%v leaves out %s", t.opts.HCA, summary(topology.Names(left))))
	}
	for _, p := range selected {
		if p.Active {
			return selected, nil
		}
		seen = append(seen, p.String()+" is "+p.State)
	}
	if len(seen) == 0 {
		seen = append(seen, "there is no RDMA device under "+t.opts.Sysfs+"/class/infiniband")
	}
	return selected, fmt.Errorf("%w: %s; check cables and drivers with ibv_devinfo", fault.ErrNoPorts, strings.Join(seen, ", "))
}

// openDevices opens the devices of all RDMA ports that the configuration selects. It fails if none of the ports that it
// opened is up.
func (t *Transport) openDevices(n *topology.Node) error {
	selected, down := t.selectDevices(n)
	if len(selected) == 0 {
		return down
	}
	lib, err := t.opts.Machine.library(t.opts.Libraries)
	if err != nil {
		return cmp.Or(down, err)
	}
	if err := lib.ForkInit(); err != nil {
		t.log.Debug("ibv_fork_init failed", "err", err)
	}
	devices, err := lib.Devices()
	if err != nil {
		return cmp.Or(down, err)
	}
	byName := map[string]*ibv.Device{}
	for _, d := range devices {
		byName[d.Name()] = d
	}
	var errs []error
	up := false
	for _, p := range selected[:min(len(selected), handshake.MaxPorts)] {
		o, err := t.openDevice(lib, byName[p.Device], p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		up = up || p.Active
		t.ports = append(t.ports, o)
	}
	if down == nil && !up {
		return fmt.Errorf("%w: %w", fault.ErrNoPorts, errors.Join(errs...))
	}
	for _, err := range errs {
		t.log.Warn("a port is not used", "err", err)
	}
	return down
}

func (t *Transport) openDevice(lib *ibv.Library, d *ibv.Device, p topology.Port) (*verbs.Port, error) {
	if d == nil {
		return nil, fmt.Errorf("%s is in sysfs but libibverbs does not list it; is its provider library (ibverbs-providers) installed, and /dev/infiniband visible here?", p.String())
	}
	o, err := verbs.Open(lib, d, p, uint8(len(t.ports)), t.opts.verbs(t.resolving))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.String(), err)
	}
	return o, nil
}
