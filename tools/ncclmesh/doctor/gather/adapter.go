package gather

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/fault"
)

// mellanox is the PCI vendor whose adapters these are on the machines that are cabled so.
const mellanox = "0x15b3"

// functions are the PCI functions of network adapters that could do RDMA.
func (l *looker) functions() facts.Fact[[]string] {
	entries, err := os.ReadDir(l.sys("bus/pci/devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return facts.Unknown[[]string]("sysfs shows no PCI bus")
	}
	if err != nil {
		return facts.Unknown[[]string](plain(err).Error())
	}
	found := []string{}
	for _, e := range entries {
		vendor, _ := text(l.sys("bus/pci/devices", e.Name(), "vendor"))
		class, _ := text(l.sys("bus/pci/devices", e.Name(), "class"))
		if vendor == mellanox && strings.HasPrefix(class, "0x02") {
			found = append(found, e.Name())
		}
	}
	return facts.Known(found)
}

// adapters are the RDMA devices.
func (l *looker) adapters() {
	n := l.node
	found, ok := n.Topology.Get()
	if !ok {
		n.Library = facts.Unknown[string](n.Topology.Because())
		return
	}
	if len(found.Ports) == 0 {
		n.Library = facts.Unknown[string]("there is no RDMA device that needs it")
		return
	}
	n.Library = facts.Of(l.Verbs.Load())
	limit, _ := n.Process.Locked.Get()
	for _, p := range found.Ports {
		if slices.ContainsFunc(n.Adapters, func(a facts.Adapter) bool { return a.Device == p.Device }) {
			continue
		}
		dir := l.sys("class/infiniband", p.Device)
		a := facts.Adapter{
			Device:   p.Device,
			Firmware: facts.Of(text(filepath.Join(dir, "fw_ver"))),
			Board:    facts.Of(text(filepath.Join(dir, "board_id"))),
			PCIe:     l.pcie(p.PCIPath),
			Fatal:    fatal(filepath.Join(dir, "device/aer_dev_fatal")),
			Speed:    facts.Unknown[int]("it has no network interface"),
		}
		if p.Netdev != "" {
			a.Speed = l.speed(p.Netdev)
		}
		l.try(&a, limit)
		n.Adapters = append(n.Adapters, a)
	}
}

// maxTrial is the most that is registered for a try, and beyond what people's default limits
// of locked memory are.
const maxTrial = 64 << 20

// small is what a kernel without memory for it was seen to refuse.
const small = 1400

// try opens a device and registers memory with it, a little and more than the limit of locked
// memory allows: who may exceed it passes.
func (l *looker) try(a *facts.Adapter, limit facts.Limit) {
	if _, ok := l.node.Library.Get(); !ok {
		why := facts.Try{Why: "libibverbs could not be loaded"}
		a.Open, a.Small, a.Large = why, why, why
		return
	}
	d, err := l.Verbs.Open(a.Device)
	a.Open = facts.Tried(0, err)
	if err != nil {
		why := facts.Try{Why: "the device does not open"}
		a.Small, a.Large = why, why
		return
	}
	defer d.Close()
	a.Small = facts.Tried(small, d.Register(small))
	large := maxTrial
	if !limit.Unlimited && limit.Most < maxTrial/2 {
		large = max(int(limit.Most)*2, 1<<20)
	}
	if available, ok := l.node.Memory.Available.Get(); ok && available < 4*maxTrial {
		a.Large = facts.Try{Why: "too little memory is available to try it"}
	} else {
		a.Large = facts.Tried(large, d.Register(large))
	}
	a.MTU = d.MTUs()
}

// speed is an interface's, Mb/s.
func (l *looker) speed(netdev string) facts.Fact[int] {
	s, err := text(l.sys("class/net", netdev, "speed"))
	if err != nil {
		return facts.Unknown[int](err.Error())
	}
	mbps, err := strconv.Atoi(s)
	if err != nil || mbps <= 0 {
		return facts.Unknown[int](fmt.Sprintf("%s says that its speed is %q", netdev, s))
	}
	return facts.Known(mbps)
}

// pcie is the link of a function, beside what it and the port that it is plugged into can do.
func (l *looker) pcie(function string) facts.Fact[facts.PCIe] {
	if function == "" {
		return facts.Unknown[facts.PCIe]("it is no PCI function")
	}
	p := facts.PCIe{Function: filepath.Base(function)}
	var errs [4]error
	p.GTs, errs[0] = gts(filepath.Join(function, "current_link_speed"))
	p.Width, errs[1] = width(filepath.Join(function, "current_link_width"))
	p.MaxGTs, errs[2] = gts(filepath.Join(function, "max_link_speed"))
	p.MaxWidth, errs[3] = width(filepath.Join(function, "max_link_width"))
	if err := errors.Join(errs[:]...); err != nil {
		return facts.Unknown[facts.PCIe](fault.OneLine(err))
	}
	up := filepath.Dir(function)
	if g, err := gts(filepath.Join(up, "max_link_speed")); err == nil {
		p.MaxGTs = min(p.MaxGTs, g)
	}
	if w, err := width(filepath.Join(up, "max_link_width")); err == nil {
		p.MaxWidth = min(p.MaxWidth, w)
	}
	return facts.Known(p)
}

// gts reads "32.0 GT/s PCIe".
func gts(path string) (float64, error) {
	s, err := text(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(s, " ")
	g, err := strconv.ParseFloat(first, 64)
	if err != nil || !(g > 0) {
		return 0, fmt.Errorf("%s has %q, which is no speed", path, s)
	}
	return g, nil
}

func width(path string) (int, error) {
	n, err := number(path)
	if err == nil && (n == 0 || n > 64) {
		err = fmt.Errorf("%s has %d, which is no width", path, n)
	}
	return int(n), err
}

// fatal adds up a function's counters of fatal errors; the last line is the total.
func fatal(path string) facts.Fact[uint64] {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return facts.Unknown[uint64]("the kernel counts no PCIe errors here")
	}
	if err != nil {
		return facts.Unknown[uint64](plain(err).Error())
	}
	var sum uint64
	for line := range strings.Lines(string(b)) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "TOTAL") {
			continue
		}
		n, err := strconv.ParseUint(count, 10, 64)
		if err != nil {
			return facts.Unknown[uint64](fmt.Sprintf("%s has %q", path, strings.TrimSpace(line)))
		}
		sum += n
	}
	return facts.Known(sum)
}
