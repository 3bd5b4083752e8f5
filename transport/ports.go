package transport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane/circuit"
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

// openPlain adds the network interfaces as ports for TCP, after those of RDMA.
func (t *Transport) openPlain(n *topology.Node) {
	o := tcp.Options{Check: t.opts.TCPCheck, Silence: t.env.Scaled(t.opts.LaneWait / 2), Data: t.data, Circuits: circuits{t}}
	usable := t.opts.LaneIfs.Select(n.Plain)
	if !t.opts.Interfaces.Named() { // what is excluded from one is from both
		usable = slices.DeleteFunc(usable, func(p topology.Port) bool { return !t.opts.Interfaces.Match(p.Netdev) })
	}
	wired := slices.DeleteFunc(slices.Clone(usable), func(p topology.Port) bool { return t.wireless(p.Netdev) })
	if len(wired) > 0 {
		usable = wired
	}
	for _, p := range usable[:min(len(usable), handshake.MaxPorts-len(t.ports))] {
		t.ports = append(t.ports, tcp.NewPort(p, uint8(len(t.ports)), o))
	}
}

// wireless reports whether an interface is a radio: no cable of a mesh, and its
// speed is anybody's guess.
func (t *Transport) wireless(netdev string) bool {
	_, err := os.Stat(filepath.Join(t.opts.Sysfs, "class/net", netdev, "phy80211"))
	return err == nil
}

// openPorts finds the ports that the configuration selects: those of RDMA, and
// after them the interfaces that TCP can use.
func (t *Transport) openPorts(n *topology.Node) error {
	var noRDMA, noTCP error
	if t.opts.Transport == TransportTCP {
		noRDMA = errors.New("NCCL_MESH_TRANSPORT is tcp, which rules RDMA out")
	} else {
		noRDMA = t.openDevices(n)
	}
	rdma := len(t.ports)
	if t.opts.Transport == TransportRDMA {
		noTCP = errors.New("NCCL_MESH_TRANSPORT is rdma, which rules TCP out")
	} else if t.openPlain(n); len(t.ports) == rdma {
		noTCP = fmt.Errorf("%w: no network interface that NCCL_SOCKET_IFNAME and NCCL_MESH_IFNAME select is up and has an address", fault.ErrNoPorts)
	}
	switch {
	case len(t.ports) == 0:
		return fmt.Errorf("%w; %w", noRDMA, noTCP)
	case noRDMA != nil && len(n.Ports) > 0:
		t.log.Warn(fmt.Sprintf("TCP is used, slower than RDMA, although there is %s: %v", path.PortNames(n.Ports), path.OneLine(noRDMA)))
	case noRDMA != nil:
		t.log.Info("TCP is used, as there is no RDMA device")
	}
	t.describe()
	for i, p := range t.ports {
		t.log.Info(fmt.Sprintf("port %d: %s", i, p.Now().Summary(t.opts.GIDs)))
	}
	return nil
}

// selectDevices chooses the RDMA ports that the configuration selects.
func (t *Transport) selectDevices(n *topology.Node) ([]topology.Port, error) {
	var selected []topology.Port
	var seen []string
	for _, p := range n.Ports {
		switch {
		case !t.opts.HCA.Match(p.Device, p.Num):
			seen = append(seen, p.String()+" is left out by NCCL_IB_HCA")
		case !p.Active:
			seen = append(seen, p.String()+" is "+p.State)
		default:
			selected = append(selected, p)
		}
	}
	if len(selected) > 0 {
		return selected, nil
	}
	if len(seen) == 0 {
		seen = append(seen, "there is no RDMA device under "+t.opts.Sysfs+"/class/infiniband")
	}
	return nil, fmt.Errorf("%w: %s; check cables and drivers with ibv_devinfo", fault.ErrNoPorts, strings.Join(seen, ", "))
}

// openDevices opens the devices of all RDMA ports that the configuration selects.
func (t *Transport) openDevices(n *topology.Node) error {
	selected, err := t.selectDevices(n)
	if err != nil {
		return err
	}
	lib, err := ibv.Load(t.opts.Libraries...)
	if err != nil {
		return err
	}
	if err := lib.ForkInit(); err != nil {
		t.log.Debug("ibv_fork_init failed", "err", err)
	}
	devices, err := lib.Devices()
	if err != nil {
		return err
	}
	byName := map[string]*ibv.Device{}
	for _, d := range devices {
		byName[d.Name()] = d
	}
	var errs []error
	for _, p := range selected {
		d := byName[p.Device]
		if d == nil {
			errs = append(errs, fmt.Errorf("%s is in sysfs but libibverbs does not list it; is its provider library (ibverbs-providers) installed, and /dev/infiniband visible here?", p.String()))
			continue
		}
		o, err := verbs.Open(lib, d, p, uint8(len(t.ports)), t.opts.verbs(t.resolving))
		if err != nil {
			errs = append(errs, fmt.Errorf("open %s: %w", p.String(), err))
			continue
		}
		t.ports = append(t.ports, o)
		t.over[o] = circuit.NewPort(o, circuit.Options{Circuits: circuits{t}, GIDs: t.opts.GIDs})
	}
	if len(t.ports) == 0 {
		return fmt.Errorf("%w: %w", fault.ErrNoPorts, errors.Join(errs...))
	}
	for _, err := range errs {
		t.log.Warn("a port is not used", "err", err)
	}
	return nil
}
