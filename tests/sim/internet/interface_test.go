package internet_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// names are the interfaces that a process sees, and whether they run.
func (w *world) names(host int) map[string]bool {
	w.Helper()
	all, err := w.processes[host].Interfaces()
	w.must(err)
	names := map[string]bool{}
	for _, i := range all {
		names[i.Name] = i.Running
	}
	return names
}

// A stream goes on over an interface that gets another name. One that is removed is gone, and with it the carrier at the other
// end of its cable.
func TestRenameAndRemove(t *testing.T) {
	try(t, 2, func(w *world) {
		a, b := w.pair(0, 1)
		w.must(a.Tie("eth0"))
		w.ports[0].Rename("late")
		w.says(a, b, "over another name")
		w.ports[0].Remove()
		if diff := cmp.Diff(map[string]bool{"lo": true}, w.names(0)); diff != "" {
			t.Errorf("interfaces of the host (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]bool{"lo": true, "eth0": false}, w.names(1)); diff != "" {
			t.Errorf("interfaces at the other end (-want +got):\n%s", diff)
		}
		if _, err := w.processes[0].Dial(context.Background(), sock.From{Netdev: "late"}, at(1, w.listen(1))); !errors.Is(err, unix.ENODEV) {
			t.Errorf("dial from it: %v", err)
		}
		w.must(a.Close(), b.Close())
		w.processes[1].Kill()
	})
}

// What passes a router has a lower hop limit, and does not come to a stream that is tied to its link.
func TestRoute(t *testing.T) {
	group := netip.MustParseAddrPort("224.0.0.254:20045")
	try(t, 2, func(w *world) {
		ear, err := w.processes[1].Hear(sock.Interface{Name: "eth0", Index: 2}, group)
		w.must(err)
		mouth, err := w.processes[0].Ask(sock.Interface{Name: "eth0", Index: 2}, addr(0), sock.PortRange{})
		w.must(err)
		for _, routers := range []int{0, 1, 254} {
			w.ports[0].Route(routers)
			w.must(mouth.Send([]byte("?"), group, addr(0)))
			d := sock.Datagram{Room: make([]byte, 10)}
			if err := ear.Receive(&d); err != nil || d.Hops != 255-routers {
				t.Errorf("behind %d routers: hop limit %d, %v", routers, d.Hops, err)
			}
		}
		w.must(ear.Close(), mouth.Close())
		w.ports[0].Route(0)
		a, b := w.pair(0, 1)
		w.must(a.Tie("eth0"), b.Tie("eth0"))
		w.says(a, b, "on the link")
		w.ports[0].Route(1)
		w.must(err1(a.Write([]byte("through a router"))), b.SetReadDeadline(time.Now().Add(5*time.Second)))
		if n, err := b.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came", n)
		}
		w.must(a.Close(), b.Close())
		w.processes[0].Kill()
		w.processes[1].Kill()
	})
}
