package main

import (
	"fmt"
	"net"
)

// notify tells the service manager of a state, as READY=1, if it wants to know.
func notify(sys *system, state string) error {
	path := sys.getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // @ begins an abstract name, there as here
	if err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	return nil
}
