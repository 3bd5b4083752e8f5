package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ncclmesh/tools/ncclmesh/report"
	"ncclmesh/transport/topology"
)

// The views write addresses as people do. As JSON would have them, numbers and lists of numbers, nobody would recognise them,
// and neither would a report.Redactor.
type (
	nodeView struct {
		topology.Node
		Ports, Plain []portView
		Links        []linkView
	}
	portView struct {
		topology.Port
		SysImageGUID, NodeGUID string
	}
	linkView struct {
		topology.Link
		MAC string
	}
)

// discovered is the node as the plugin sees it.
func discovered(sysfs string) ([]byte, error) {
	node, err := topology.Discover(topology.Source{Sysfs: sysfs})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(viewOf(node), "", "  ")
}

func viewOf(node *topology.Node) nodeView {
	v := nodeView{Node: *node}
	for _, l := range node.Links {
		v.Links = append(v.Links, linkView{l, net.HardwareAddr(l.MAC[:]).String()})
	}
	ports := func(list []topology.Port) (views []portView) {
		for _, p := range list {
			views = append(views, portView{Port: p, SysImageGUID: guid(p.SysImageGUID), NodeGUID: guid(p.NodeGUID)})
		}
		return views
	}
	v.Ports, v.Plain = ports(node.Ports), ports(node.Plain)
	return v
}

// guid writes a GUID as sysfs does.
func guid(g uint64) string {
	s := fmt.Sprintf("%016x", g)
	return strings.Join([]string{s[:4], s[4:8], s[8:12], s[12:]}, ":")
}

// thisNodesAddresses returns the name and the addresses of this node. root is "/" but in tests.
func thisNodesAddresses(root string) (report.Node, error) {
	var node report.Node
	var err error
	if node.Host, err = os.Hostname(); err != nil {
		return node, err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return node, err
	}
	for _, i := range interfaces {
		node.MACs = append(node.MACs, i.HardwareAddr)
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				node.Addrs = append(node.Addrs, p.Addr())
			}
		}
	}
	devices := os.DirFS(filepath.Join(root, "sys/class/infiniband"))
	each := func(pattern string, f func(text string)) {
		paths, _ := fs.Glob(devices, pattern) // the pattern is right
		for _, path := range paths {
			if text, err := fs.ReadFile(devices, path); err == nil { // an unused GID cannot be read
				f(strings.TrimSpace(string(text)))
			}
		}
	}
	for _, name := range []string{"*/node_guid", "*/sys_image_guid"} {
		each(name, func(text string) {
			if g, err := strconv.ParseUint(strings.ReplaceAll(text, ":", ""), 16, 64); err == nil {
				node.GUIDs = append(node.GUIDs, g)
			}
		})
	}
	each("*/ports/*/gids/*", func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			node.Addrs = append(node.Addrs, a)
		}
	})
	return node, nil
}
