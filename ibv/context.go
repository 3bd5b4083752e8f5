package ibv

import (
	"sync"
)

// A Context is an open device.
type Context struct {
	lib    *Library
	device *Device
	life   life
	info   ContextInfo // as it was at Open; the operations of a context do not change

	cqs, qps sync.Map // handle → *CQ, *QP, for events

	eventsMu   sync.Mutex
	stopEvents func() // nil while nobody watches
	eventsFD   int    // that the watcher waits with, -1 where it needs none
}

// Library is what the device was listed by.
func (c *Context) Library() *Library { return c.lib }

// FDs are the command and the asynchronous-event descriptor. As long as a forked child has them open, the kernel keeps the
// device's queue pairs alive. They are -1 for a device without descriptors.
func (c *Context) FDs() [2]int { return [2]int{c.info.CmdFD, c.info.AsyncFD} }

// EventsFD is a third such descriptor, there while Events runs, else -1.
func (c *Context) EventsFD() int {
	c.eventsMu.Lock()
	defer c.eventsMu.Unlock()
	if c.stopEvents == nil {
		return -1
	}
	return c.eventsFD
}

// QueryDevice returns the device's attributes. Its GUIDs are big-endian in memory.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	var attr DeviceAttr
	if err := c.life.check(); err != nil {
		return attr, err
	}
	errno := c.lib.driver.QueryDevice(c.info.Handle, &attr)
	return attr, newError("query_device", c.device.info.Name, 0, errno, "")
}

// QueryPort returns the attributes of a port. Ports count from 1.
func (c *Context) QueryPort(port uint8) (PortAttr, error) {
	var attr PortAttr
	if err := c.life.check(); err != nil {
		return attr, err
	}
	errno := c.lib.driver.QueryPort(c.info.Handle, port, &attr)
	return attr, newError("query_port", c.device.info.Name, port, errno, "")
}

// Close stops the events and closes the device. Everything made from it has to be closed before.
func (c *Context) Close() error {
	// The watcher is waited for without the lock that f may need, and not at all if Close is going to fail.
	if c.life.left() == "" {
		c.eventsMu.Lock()
		stop := c.stopEvents
		c.eventsMu.Unlock()
		if stop != nil {
			stop()
		}
	}
	return c.life.end("context "+c.device.info.Name, func() error {
		return newError("close_device", c.device.info.Name, 0, c.lib.driver.CloseDevice(c.info.Handle), "")
	})
}
