package world

import (
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
)

// source reports the devices and interfaces of a machine to one of its processes.
type source struct {
	m      *Machine
	events *bus.Source
	gate   *bus.Gate // of the process
}

var _ transport.Source = (*source)(nil)

func (s *source) Discover() (*topology.Node, error) {
	return topology.Discover(topology.Source{Sysfs: s.m.sysfs, Links: s.m.links})
}

func (s *source) GPUs() []topology.Slot { return nil }

func (s *source) PeerMemory() bool { return topology.PeerMemory(s.m.sysfs) }

// news is a change of an interface that netlink reports.
type news struct {
	link    string // name of the interface whose carrier changed; "" when something else changed, such as an address
	carrier bool
}

// Watch reports each change after a delay, drawn as the time that netlink takes.
func (s *source) Watch(done <-chan struct{}, changed func(), link func(string, bool), caught func(*guard.Panic)) error {
	var mu sync.Mutex
	var queue []news
	was := map[string]bool{}
	for _, i := range s.m.Interfaces() {
		was[i.Name()] = i.Running()
	}
	wake := make(chan struct{}, 1)
	s.m.Watch(func() {
		all := []news{{}}
		for _, i := range s.m.Interfaces() {
			running := i.Running()
			mu.Lock()
			if was[i.Name()] != running {
				was[i.Name()] = running
				all = append(all, news{i.Name(), running})
			}
			mu.Unlock()
		}
		s.events.After(s.events.Between(50*time.Microsecond, 5*time.Millisecond), "netlink", func() {
			mu.Lock()
			queue = append(queue, all...)
			mu.Unlock()
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	})
	go guard.Run(func() {
		for {
			select {
			case <-wake:
			case <-done:
				return
			}
			s.gate.Wait()
			mu.Lock()
			all := queue
			queue = nil
			mu.Unlock()
			for _, n := range all {
				if n.link != "" {
					link(n.link, n.carrier)
				}
				changed()
			}
		}
	}, caught)
	return nil
}
