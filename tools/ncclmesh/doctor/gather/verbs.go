package gather

import (
	"errors"
	"fmt"

	"ncclmesh/ibv"
)

// Verbs is a library of verbs.
type Verbs interface {
	Load() (string, error)              // loads it, and says which it is
	Open(device string) (Device, error) // opens a device
}

// Device is an open one.
type Device interface {
	Register(bytes int) error // registers memory, and lets it go again
	MTUs() map[uint8]int      // active MTU by port, bytes
	Close() error
}

// libibverbs is the machine's.
type libibverbs struct {
	names   []string
	lib     *ibv.Library
	devices map[string]*ibv.Device
}

// errNotListed is a device of sysfs that the library does not show.
var errNotListed = errors.New("libibverbs does not list it: /dev/infiniband is not visible here, or its provider library (ibverbs-providers) is missing")

func (v *libibverbs) Load() (string, error) {
	lib, err := ibv.Load(v.names...)
	if err != nil {
		return "", err
	}
	devices, err := lib.Devices()
	if err != nil {
		return "", err
	}
	v.lib, v.devices = lib, map[string]*ibv.Device{}
	for _, d := range devices {
		v.devices[d.Name()] = d
	}
	return "libibverbs", nil
}

func (v *libibverbs) Open(device string) (Device, error) {
	d := v.devices[device]
	if d == nil {
		return nil, errNotListed
	}
	ctx, err := d.Open()
	if err != nil {
		return nil, err
	}
	return opened{ctx}, nil
}

// opened is a device of it.
type opened struct{ *ibv.Context }

func (d opened) Register(bytes int) (err error) {
	pd, err := d.AllocPD()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	m, err := ibv.Alloc(bytes)
	if err != nil {
		return fmt.Errorf("no memory for the test: %w", err)
	}
	defer func() { err = errors.Join(err, m.Free()) }()
	r, err := pd.RegMR(m.Addr(), uintptr(bytes), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE)
	if err != nil {
		return err
	}
	return r.Close()
}

func (d opened) MTUs() map[uint8]int {
	mtus := map[uint8]int{}
	attr, err := d.QueryDevice()
	if err != nil {
		return mtus
	}
	for port := uint8(1); port <= attr.PhysPortCnt; port++ {
		if a, err := d.QueryPort(port); err == nil && a.ActiveMTU > 0 && a.ActiveMTU <= ibv.IBV_MTU_4096 {
			mtus[port] = 128 << a.ActiveMTU
		}
	}
	return mtus
}
