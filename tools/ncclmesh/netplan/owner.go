package netplan

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ownFile is the one file that is written.
const ownFile = "etc/netplan/70-ncclmesh.yaml"

// A claim is an interface, or a pattern of names, that a file configures.
type claim struct {
	pattern string // "" matches by mac alone
	mac     string
	file    string
}

// Owners are the files that configure interfaces of this node: netplan's, NetworkManager's, networkd's and ifupdown's.
type Owners []claim

// ReadOwners reads them below root, which is "/" but in tests. This command's own file is none.
func ReadOwners(root string) (Owners, error) {
	var o Owners
	var errs []error
	for _, kind := range []struct {
		pattern string
		parse   func(text []byte) ([]claim, error)
	}{
		{"etc/netplan/*.yaml", parseNetplan}, {"run/netplan/*.yaml", parseNetplan}, {"lib/netplan/*.yaml", parseNetplan},
		{"etc/NetworkManager/system-connections/*", parseKeyfile},
		{"etc/systemd/network/*.network", parseNetworkd},
		{"etc/network/interfaces", parseInterfaces}, {"etc/network/interfaces.d/*", parseInterfaces},
	} {
		files, err := filepath.Glob(filepath.Join(root, kind.pattern))
		errs = append(errs, err)
		for _, file := range files {
			name, _ := filepath.Rel(root, file)
			if name == ownFile {
				continue
			}
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var claims []claim
			if err == nil {
				claims, err = kind.parse(text)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("who configures the interfaces: /%s: %w", name, err))
			}
			for _, c := range claims {
				c.file = "/" + name
				o = append(o, c)
			}
		}
	}
	return o, errors.Join(errs...)
}

// Of returns the file that configures an interface, "" when none does.
func (o Owners) Of(name, mac string) string {
	for _, c := range o {
		byName, _ := path.Match(c.pattern, name)
		if c.pattern != "" && !byName || c.pattern == "" && c.mac == "" {
			continue
		}
		if c.mac == "" || strings.EqualFold(c.mac, mac) {
			return c.file
		}
	}
	return ""
}

// document is what is looked at of a netplan file.
type document struct {
	Network map[string]yaml.Node `yaml:"network"`
}

type device struct {
	Match *struct {
		Name any    `yaml:"name"` // one or a list
		MAC  string `yaml:"macaddress"`
	} `yaml:"match"`
	SetName   string   `yaml:"set-name"`
	Addresses []any    `yaml:"addresses"`
	Members   []string `yaml:"interfaces"` // of a bond or bridge
	Link      string   `yaml:"link"`       // of a VLAN
}

func eachDevice(text []byte, f func(id string, d device)) error {
	var doc document
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	for kind, node := range doc.Network {
		if kind == "version" || kind == "renderer" {
			continue
		}
		var devices map[string]device
		if err := node.Decode(&devices); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		for id, d := range devices {
			f(id, d)
		}
	}
	return nil
}

func parseNetplan(text []byte) (claims []claim, err error) {
	err = eachDevice(text, func(id string, d device) {
		for _, member := range append(d.Members, d.SetName, d.Link) {
			if member != "" {
				claims = append(claims, claim{pattern: member})
			}
		}
		if d.Match == nil {
			claims = append(claims, claim{pattern: id})
			return
		}
		var names []any
		switch n := d.Match.Name.(type) {
		case []any:
			names = n
		case nil:
			names = []any{""}
		default:
			names = []any{n}
		}
		for _, n := range names {
			claims = append(claims, claim{pattern: fmt.Sprint(n), mac: d.Match.MAC})
		}
	})
	return claims, err
}

// Own returns the addresses that this command's file gives, as they stand there.
func Own(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, ownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var addresses []string
	err = eachDevice(text, func(_ string, d device) {
		for _, a := range d.Addresses {
			addresses = append(addresses, fmt.Sprint(a))
		}
	})
	slices.Sort(addresses)
	return addresses, err
}

// settings calls f with what a file of sections and NAME=value lines says.
func settings(text []byte, f func(section, name, value string)) error {
	section := ""
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
		} else if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			f(section, strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return lines.Err()
}

// parseKeyfile reads a connection of NetworkManager's.
func parseKeyfile(text []byte) ([]claim, error) {
	var c claim
	err := settings(text, func(section, name, value string) {
		switch {
		case section == "connection" && name == "interface-name":
			c.pattern = value
		case name == "mac-address":
			c.mac = value
		}
	})
	return []claim{c}, err
}

func parseNetworkd(text []byte) (claims []claim, err error) {
	var names, macs []string
	err = settings(text, func(section, name, value string) {
		switch {
		case section != "Match":
		case name == "Name":
			names = append(names, strings.Fields(value)...)
		case name == "MACAddress" || name == "PermanentMACAddress":
			macs = append(macs, strings.Fields(value)...)
		}
	})
	if len(names) == 0 && len(macs) > 0 {
		names = []string{""}
	}
	for _, n := range names {
		if len(macs) == 0 {
			claims = append(claims, claim{pattern: n})
		}
		for _, m := range macs {
			claims = append(claims, claim{pattern: n, mac: m})
		}
	}
	return claims, err
}

func parseInterfaces(text []byte) (claims []claim, err error) {
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "iface" {
			claims = append(claims, claim{pattern: f[1]})
		}
	}
	return claims, nil
}
