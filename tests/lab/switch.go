package lab

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// An l2switch is the management network: a learning Ethernet switch between Unix datagram sockets, one port per machine.
type l2switch struct {
	ports []*net.UnixConn
	peers []*net.UnixAddr
	wg    sync.WaitGroup

	mu    sync.Mutex
	learn map[[6]byte]int
}

// newSwitch opens a port for every machine in dir. Machines send to switchSocket(dir, m) and are reached at
// machineSocket(dir, m).
func newSwitch(dir string, machines []string) (*l2switch, error) {
	s := &l2switch{learn: make(map[[6]byte]int)}
	for _, m := range machines {
		c, err := net.ListenUnixgram("unixgram", unixgram(switchSocket(dir, m)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("management network: %w", err), s.Close())
		}
		_ = c.SetWriteBuffer(1 << 20)
		s.ports = append(s.ports, c)
		s.peers = append(s.peers, unixgram(machineSocket(dir, m)))
	}
	for i := range s.ports {
		s.wg.Go(func() { s.forward(i) })
	}
	return s, nil
}

func switchSocket(dir, machine string) string  { return filepath.Join(dir, "switch."+machine) }
func machineSocket(dir, machine string) string { return filepath.Join(dir, "mgmt."+machine) }

func unixgram(path string) *net.UnixAddr { return &net.UnixAddr{Name: path, Net: "unixgram"} }

// Close ends the network.
func (s *l2switch) Close() error {
	var errs []error
	for _, c := range s.ports {
		errs = append(errs, c.Close())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// forward carries the frames that arrive at a port until it is closed.
func (s *l2switch) forward(port int) {
	frame := make([]byte, 1<<16)
	for {
		n, err := s.ports[port].Read(frame)
		if err != nil {
			return
		}
		if n < 14 {
			continue
		}
		for _, to := range s.route(port, [6]byte(frame[0:6]), [6]byte(frame[6:12])) {
			// A machine that is off or hung loses frames; it must not stop the others.
			_ = s.ports[to].SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			_, _ = s.ports[to].WriteToUnix(frame[:n], s.peers[to])
		}
	}
}

// route learns where src is and returns the ports to which a frame for dst goes.
func (s *l2switch) route(port int, dst, src [6]byte) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src[0]&1 == 0 {
		s.learn[src] = port
	}
	if to, ok := s.learn[dst]; ok && dst[0]&1 == 0 {
		if to == port {
			return nil
		}
		return []int{to}
	}
	var all []int
	for to := range s.ports {
		if to != port {
			all = append(all, to)
		}
	}
	return all
}
