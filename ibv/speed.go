package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

// PortSpeed is the port's data rate in Mb/s as the library knows it, else width × speed.
func (c *Context) PortSpeed(port uint8) (int, error) {
	if err := c.life.check(); err != nil {
		return 0, err
	}
	units, errno := c.lib.driver.QueryPortSpeed(c.info.Handle, port)
	err := newError("query_port_speed", c.device.info.Name, port, errno, "")
	switch {
	case err == nil && units > 0:
		return int(units) * 100, nil
	case err != nil && !errors.Is(err, ErrNotSupported):
		return 0, err
	}
	attr, err := c.QueryPort(port)
	if err != nil {
		return 0, err
	}
	mbps, ok := attr.Speed()
	if !ok {
		return 0, newError("query_port", c.device.info.Name, port, syscall.EINVAL,
			fmt.Sprintf("no data rate for active_width %d and active_speed %d (extended %d)", attr.ActiveWidth, attr.ActiveSpeed, attr.ActiveSpeedEx))
	}
	return mbps, nil
}

// lanes are the codes of active_width.
var lanes = map[byte]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}

// laneSpeeds are the codes of active_speed, in Mb/s per lane.
var laneSpeeds = map[uint32]int{
	1:   2500,   // SDR
	2:   5000,   // DDR
	4:   10000,  // QDR
	8:   10000,  // FDR10
	16:  14000,  // FDR
	32:  25000,  // EDR
	64:  50000,  // HDR
	128: 100000, // NDR
	256: 200000, // XDR, in active_speed_ex only
}

// Speed is active width × active speed in Mb/s; false when a code is unknown.
func (a *PortAttr) Speed() (mbps int, ok bool) {
	code := uint32(a.ActiveSpeed)
	if a.ActiveSpeedEx != 0 {
		code = a.ActiveSpeedEx
	}
	n, ok1 := lanes[a.ActiveWidth]
	s, ok2 := laneSpeeds[code]
	return n * s, ok1 && ok2
}
