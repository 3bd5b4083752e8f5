package ibv

// A Device is an RDMA device as it was listed. It holds nothing of the library's and needs no closing.
type Device struct {
	lib  *Library
	info DeviceInfo
}

// Name is the device's name in sysfs.
func (d *Device) Name() string { return d.info.Name }

func (d *Device) String() string { return d.info.Name }

// Open finds the device again, by name and GUID, and opens it.
func (d *Device) Open() (*Context, error) {
	c := &Context{lib: d.lib, device: d, eventsFD: -1}
	if err := c.life.begin(kindContext); err != nil {
		return nil, err
	}
	var err error
	if c.info, err = d.lib.driver.OpenDevice(d.info.Name, d.info.GUID); err != nil {
		c.life.abandon()
		return nil, err
	}
	return c, nil
}
