package ibv

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A GID is a port's 128-bit address, for RoCE an IPv6 address or an IPv4-mapped one.
type GID [16]byte

func (g GID) String() string { return netip.AddrFrom16(g).Unmap().String() }

// QueryGID returns an entry of the port's GID table with its type and network interface. The error of an empty entry is
// ENODATA.
func (c *Context) QueryGID(port uint8, index int) (GIDEntry, error) {
	var entry GIDEntry
	if err := c.life.check(); err != nil {
		return entry, err
	}
	errno := c.lib.driver.QueryGIDEx(c.info.Handle, port, index, &entry)
	err := newError("query_gid_ex", c.device.info.Name, port, errno, fmt.Sprintf("index %d", index))
	if !errors.Is(err, ErrNotSupported) {
		return entry, err
	}
	entry = GIDEntry{GIDIndex: uint32(index), PortNum: uint32(port)}
	fail := func(errno syscall.Errno, detail string) error {
		return newError("query_gid", c.device.info.Name, port, errno, fmt.Sprintf("index %d%s", index, detail))
	}
	if errno := c.lib.driver.QueryGID(c.info.Handle, port, index, &entry.GID); errno != 0 {
		return entry, fail(errno, "")
	}
	if entry.GID == (GID{}) {
		return entry, fail(syscall.ENODATA, " is empty")
	}
	attr, err := c.QueryPort(port)
	if err != nil {
		return entry, err
	}
	dir := filepath.Join(c.lib.sysfs, "class/infiniband", c.device.info.Name, "ports", strconv.Itoa(int(port)), "gid_attrs")
	if entry.GIDType, err = gidType(filepath.Join(dir, "types", strconv.Itoa(index)), attr.LinkLayer); err != nil {
		return entry, fail(syscall.EIO, ": "+err.Error())
	}
	entry.NdevIfindex = ndevIndex(filepath.Join(dir, "ndevs", strconv.Itoa(index)))
	return entry, nil
}

// gidType reads what the kernel says of an entry's type. A kernel too old to say it knows RoCE v1 only.
func gidType(file string, linkLayer uint8) (uint32, error) {
	if linkLayer == IBV_LINK_LAYER_INFINIBAND {
		return IBV_GID_TYPE_IB, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return IBV_GID_TYPE_ROCE_V1, nil
	} else if err != nil {
		return 0, err
	}
	switch s := strings.TrimSpace(string(b)); s {
	case "IB/RoCE v1":
		return IBV_GID_TYPE_ROCE_V1, nil
	case "RoCE v2":
		return IBV_GID_TYPE_ROCE_V2, nil
	default:
		return 0, fmt.Errorf("%s: GID type %q is neither \"IB/RoCE v1\" nor \"RoCE v2\"", file, s)
	}
}

// ndevIndex is the index of the interface that an entry belongs to, 0 if there is none or it lies in another namespace.
func ndevIndex(file string) uint32 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	ifi, err := net.InterfaceByName(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return uint32(ifi.Index)
}
