package internet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/sock"
)

// A world is hosts a, b and so on, with a process each, and an interface each on one link.
type world struct {
	*testing.T
	bus       *bus.Bus
	net       *internet.Internet
	link      *internet.Link
	hosts     []*internet.Host
	ports     []*internet.Interface
	processes []*internet.Process
	clock     *bus.Source
	a         sock.Conn
}

// fast is a link on which things still take their time: 1 GB/s.
var fast = internet.LinkConfig{Rate: 1e9, Latency: 10 * time.Microsecond, Jitter: time.Microsecond}

// addr is the address of a host on the link, IPv4.
func addr(host int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(host + 1)}) }

func newWorld(t *testing.T, b *bus.Bus, hosts int) *world {
	w := &world{T: t, bus: b, net: internet.New(b), clock: b.Source("test")}
	for i := range hosts {
		h := w.net.AddHost(string(rune('a' + i)))
		w.hosts = append(w.hosts, h)
		w.ports = append(w.ports, h.AddInterface("eth0", netip.PrefixFrom(addr(i), 24)))
		w.processes = append(w.processes, h.Process("p"))
	}
	w.link = w.net.Connect(fast, w.ports...)
	return w
}

// try runs f in a bubble with a world, twice, and wants the two runs to be the same and nothing to be left.
func try(t *testing.T, hosts int, f func(w *world)) {
	t.Helper()
	bus.Twice(t, 1, func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b, hosts)
		f(w)
		for _, p := range w.processes {
			if left := p.Open(); len(left) > 0 {
				t.Errorf("%v has left open: %v", p, left)
			}
		}
	})
}

func (w *world) must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// listen opens a listener of a host's process at all addresses.
func (w *world) listen(host int) sock.Listener {
	w.Helper()
	l, err := w.processes[host].Listen(netip.AddrPort{}, "", sock.PortRange{})
	w.must(err)
	return l
}

// at is where a listener of a host is reached.
func at(host int, l sock.Listener) netip.AddrPort {
	return netip.AddrPortFrom(addr(host), l.Addr().Port())
}

// pair is both ends of a stream from one host to another.
func (w *world) pair(from, to int) (a, b sock.Conn) {
	w.Helper()
	l := w.listen(to)
	defer l.Close()
	a, err := w.processes[from].Dial(context.Background(), sock.From{}, at(to, l))
	w.must(err)
	b, err = l.Accept()
	w.must(err)
	return a, b
}

// pattern is n bytes that depend on their place and on a number.
func pattern(n, number int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16 + number*31)
	}
	return b
}

// send writes a pattern, and ends the stream behind it.
func send(c sock.Conn, n, number int) error {
	if _, err := c.Write(pattern(n, number)); err != nil {
		return err
	}
	return c.CloseWrite()
}

// wants reads to the end, and wants it to be a pattern.
func (w *world) wants(c sock.Conn, n, number int) {
	got, err := io.ReadAll(c)
	if err != nil {
		w.Error(err)
		return
	}
	if !bytes.Equal(got, pattern(n, number)) {
		w.Errorf("%d bytes came, want %d, and they differ", len(got), n)
	}
}
