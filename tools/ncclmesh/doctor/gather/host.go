package gather

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// host is the machine and its kernel.
func (l *looker) host() {
	n := l.node
	n.Kernel = facts.Of(text(l.path("proc/sys/kernel/osrelease")))
	n.Uptime = l.uptime()
	n.HostName = l.hostName()
	n.MachineID = facts.Of(text(l.path("etc/machine-id")))
	n.DMI = l.dmi()
	n.Modules = facts.Of(firstWords(l.path("proc/modules")))
	n.Memory = l.memory()
}

// uptime is how long the kernel runs.
func (l *looker) uptime() facts.Fact[time.Duration] {
	s, err := text(l.path("proc/uptime"))
	if err != nil {
		return facts.Unknown[time.Duration](err.Error())
	}
	first, _, _ := strings.Cut(s, " ")
	return facts.Of(time.ParseDuration(first + "s"))
}

// hostName is what the node calls itself, and the addresses that its file of hosts has for that.
func (l *looker) hostName() facts.Fact[facts.HostName] {
	name, err := text(l.path("proc/sys/kernel/hostname"))
	if err != nil {
		return facts.Unknown[facts.HostName](err.Error())
	}
	b, err := os.ReadFile(l.path("etc/hosts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return facts.Unknown[facts.HostName](plain(err).Error())
	}
	host := facts.HostName{Name: name}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 || !slices.Contains(words[1:], name) {
			continue
		}
		if a, err := netip.ParseAddr(words[0]); err == nil {
			host.Addrs = append(host.Addrs, a)
		}
	}
	return facts.Known(host)
}

// dmi is what the maker calls the machine.
func (l *looker) dmi() facts.Fact[[]string] {
	var all []string
	for _, name := range []string{"sys_vendor", "product_name", "product_family", "board_name"} {
		s, err := text(l.sys("class/dmi/id", name))
		if err != nil {
			continue
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return facts.Unknown[[]string]("sysfs does not say which machine this is")
	}
	return facts.Known(all)
}

// memory is what there is.
func (l *looker) memory() facts.Memory {
	fields, err := meminfo(l.path("proc/meminfo"))
	field := func(name string) facts.Fact[uint64] {
		v, ok := fields[name]
		if err == nil && !ok {
			return facts.Unknown[uint64]("/proc/meminfo has no " + name)
		}
		return facts.Of(v, err)
	}
	return facts.Memory{Available: field("MemAvailable"), CMA: field("CmaTotal")}
}

// meminfo reads lines such as "MemTotal:  1024 kB", in bytes.
func meminfo(path string) (map[string]uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, plain(err)
	}
	fields := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if len(words) != 2 || words[1] != "kB" {
			continue
		}
		kb, err := strconv.ParseUint(words[0], 10, 53)
		if err != nil {
			return nil, fmt.Errorf("%s: %s is %q", path, name, words[0])
		}
		fields[name] = kb << 10
	}
	return fields, nil
}

// firstWords are those of a file's lines, none of one that is not there.
func firstWords(path string) ([]string, error) {
	words := []string{}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // a kernel that loads none
		return words, nil
	}
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if w := strings.Fields(s.Text()); len(w) > 0 {
			words = append(words, w[0])
		}
	}
	return words, plain(s.Err())
}
