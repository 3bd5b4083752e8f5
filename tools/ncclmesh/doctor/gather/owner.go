package gather

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// owner is a kind of configuration files.
type owner struct {
	name  string
	globs []string
	gone  bool   // at the next boot
	skip  string // files of this beginning are another owner's doing
}

// owners are those who give addresses to interfaces on the systems that these machines run.
var owners = []owner{
	{"netplan", []string{"etc/netplan/*.yaml", "run/netplan/*.yaml", "lib/netplan/*.yaml"}, false, ""},
	{"NetworkManager", []string{"etc/NetworkManager/system-connections/*"}, false, "netplan-"},
	{"NetworkManager", []string{"run/NetworkManager/system-connections/*"}, true, "netplan-"},
	{"systemd-networkd", []string{"etc/systemd/network/*.network"}, false, ""},
	{"ifupdown", []string{"etc/network/interfaces", "etc/network/interfaces.d/*"}, false, ""},
}

// owners finds the files that name an interface of the node.
func (l *looker) owners() {
	found, ok := l.node.Topology.Get()
	if !ok {
		l.node.Owners = facts.Unknown[map[string][]facts.File](l.node.Topology.Because())
		return
	}
	var netdevs []string
	for _, l := range found.Links {
		if !l.Loopback {
			netdevs = append(netdevs, l.Name)
		}
	}
	all := map[string][]facts.File{}
	for _, o := range owners {
		for _, glob := range o.globs {
			if err := l.owned(all, o, glob, netdevs); err != nil {
				l.node.Owners = facts.Unknown[map[string][]facts.File](plain(err).Error())
				return
			}
		}
	}
	l.node.Owners = facts.Known(all)
}

// owned adds the files of one kind.
func (l *looker) owned(all map[string][]facts.File, o owner, glob string, netdevs []string) error {
	if _, err := os.ReadDir(l.path(filepath.Dir(glob))); errors.Is(err, fs.ErrPermission) {
		return err // Glob would find nothing, and not say why
	}
	files, err := filepath.Glob(l.path(glob))
	if err != nil {
		return err
	}
	for _, file := range files {
		if o.skip != "" && strings.HasPrefix(filepath.Base(file), o.skip) {
			continue
		}
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, netdev := range netdevs {
			if mentions(b, netdev) {
				rel, _ := filepath.Rel(l.Root, file)
				all[netdev] = append(all[netdev], facts.File{Path: "/" + rel, Owner: o.name, Gone: o.gone})
			}
		}
	}
	return nil
}
