package ibv

import (
	"fmt"
	"syscall"
)

// A Device is an RDMA device as it was listed. It holds nothing of the library's and needs no closing.
type Device struct {
	lib       *Library
	name      string
	guid      uint64
	nodeType  int32
	transport int32
}

// Name is the device's name in sysfs.
func (d *Device) Name() string { return d.name }

// GUID is the node GUID as a number: its highest byte is the first one that tools print.
func (d *Device) GUID() uint64 { return d.guid }

// NodeType is IBV_NODE_CA and so on.
func (d *Device) NodeType() int { return int(d.nodeType) }

// Transport is IBV_TRANSPORT_IB (InfiniBand and RoCE), IBV_TRANSPORT_IWARP and so on.
func (d *Device) Transport() int { return int(d.transport) }

func (d *Device) String() string { return d.name }

// Open finds the device again, by name and GUID, and opens it.
func (d *Device) Open() (*Context, error) {
	c := &Context{lib: d.lib, device: d}
	if err := c.life.begin(kindContext); err != nil {
		return nil, err
	}
	found := false
	var errno syscall.Errno
	err := d.lib.eachDevice(func(ptr uintptr) bool {
		if found = d.lib.deviceName(ptr) == d.name && d.lib.deviceGUID(ptr) == d.guid; found {
			c.ptr, errno = d.lib.openDevice(ptr)
		}
		return !found
	})
	switch {
	case err != nil:
	case !found:
		err = newError("open_device", d.name, 0, syscall.ENODEV, fmt.Sprintf("no device of this name with GUID %016x any more", d.guid))
	default:
		err = newError("open_device", d.name, 0, errno, openHint(errno))
	}
	if err != nil {
		c.life.abandon()
		return nil, err
	}
	c.c = at[cContext](c.ptr)
	c.ops = *c.c
	return c, nil
}

func openHint(errno syscall.Errno) string {
	switch errno {
	case syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.ENODEV:
		return "the device file /dev/infiniband/uverbs* must exist and be open to this user; in a container: --device=/dev/infiniband"
	case syscall.ENOSYS, syscall.EOPNOTSUPP:
		return "no provider library for this device: install package ibverbs-providers (Debian, Ubuntu) or rdma-core"
	}
	return ""
}
