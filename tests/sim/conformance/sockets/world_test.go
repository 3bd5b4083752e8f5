package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/sock"
)

// A world is what a row runs on: two hosts with a cable between them.
type world struct {
	*testing.T
	hosts []*host
	pause func() // lets others do something
	model bool
}

// A host is one of them.
type host struct {
	sock.Network
	faults
	w         *world
	other     *host
	four, six netip.Addr
	local     netip.Addr // link-local, with its zone
	index     int        // of its interface, eth0
}

// faults are what can be done to a host.
type faults interface {
	lose(on bool)                          // what it sends to the other host vanishes
	up(on bool)                            // its interface
	address(address netip.Prefix, on bool) // has its interface, beside others
}

// add adds a host.
func (w *world) add(n sock.Network, f func(*host) faults) {
	i := byte(len(w.hosts) + 1)
	h := &host{Network: n, w: w, four: netip.AddrFrom4([4]byte{10, 9, 0, i}), six: netip.AddrFrom16([16]byte{0xfd, 9, 15: i})}
	h.faults = f(h)
	w.hosts = append(w.hosts, h)
	if i == 2 {
		h.other, w.hosts[0].other = w.hosts[0], h
	}
}

// prefixes are the addresses that a host begins with.
func (h *host) prefixes() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(h.four, 24), netip.PrefixFrom(h.six, 64)}
}

// on is the host's interface.
func (h *host) on() sock.Interface { return sock.Interface{Name: "eth0", Index: h.index} }

// hopeless is when a row that waits fails. It is no measure: rows wait for what is to happen.
const hopeless = 10 * time.Minute

// await waits until something is so.
func (w *world) await(what string, so func() bool) {
	w.Helper()
	for begun := time.Now(); !so(); {
		if time.Since(begun) > hopeless {
			w.Fatalf("%s has not come", what)
		}
		w.pause()
	}
}

// must ends the row on an error.
func (w *world) must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// is wants an error to wrap another; nil wants none.
func (w *world) is(what string, err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestModel(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			bus.Twice(t, 1, func(t *testing.T, b *bus.Bus) {
				n := internet.New(b)
				clock := b.Source("test")
				w := &world{T: t, model: true, pause: func() { clock.Sleep(time.Millisecond) }}
				var processes []*internet.Process
				var ports []*internet.Interface
				for i := range 2 {
					h := n.AddHost(string(rune('a' + i)))
					p := h.Process("p")
					w.add(p, func(o *host) faults {
						o.index = 2
						f := &model{port: h.AddInterface("eth0", o.prefixes()...), prefixes: o.prefixes()}
						ports = append(ports, f.port)
						return f
					})
					for _, a := range ports[i].Prefixes() {
						if a.Addr().IsLinkLocalUnicast() {
							w.hosts[i].local = a.Addr().WithZone("eth0")
						}
					}
					processes = append(processes, p)
				}
				n.Connect(internet.LinkConfig{Rate: 1e9, Latency: 10 * time.Microsecond, Jitter: time.Microsecond}, ports...)
				r.run(w)
				for _, p := range processes {
					if left := p.Open(); len(left) > 0 && !t.Failed() {
						t.Errorf("%v has left open %v", p, left)
					}
				}
			})
		})
	}
}

// model is the faults of a host of the model.
type model struct {
	port     *internet.Interface
	prefixes []netip.Prefix
}

func (m *model) lose(on bool) {
	if on {
		m.port.Lose(internet.Loss{Streams: 1, Datagrams: 1})
	} else {
		m.port.Lose(internet.Loss{})
	}
}

func (m *model) up(on bool) { m.port.SetUp(on) }

func (m *model) address(a netip.Prefix, on bool) {
	var rest []netip.Prefix
	for _, p := range m.prefixes {
		if p != a {
			rest = append(rest, p)
		}
	}
	if on {
		rest = append(rest, a)
	}
	m.prefixes = rest
	m.port.SetPrefixes(rest...)
}

// listen opens a listener at an address, on any port, for the rest of the row.
func (h *host) listen(at netip.Addr, netdev string) sock.Listener {
	h.w.Helper()
	l, err := h.Listen(netip.AddrPortFrom(at, 0), netdev, sock.PortRange{})
	h.w.must(err)
	return l
}

// dial opens a stream.
func (h *host) dial(from sock.From, to netip.AddrPort) sock.Conn {
	h.w.Helper()
	c, err := h.Dial(context.Background(), from, to)
	h.w.must(err)
	return c
}

// fails wants a call to fail.
func (h *host) fails(from sock.From, to netip.AddrPort, want error) {
	h.w.Helper()
	c, err := h.Dial(context.Background(), from, to)
	if err == nil {
		_ = c.Close()
	}
	h.w.is(fmt.Sprintf("dial from %+v to %v", from, to), err, want)
}

// joined is both ends of a stream over IPv4.
func joined(w *world) (a, b sock.Conn) {
	w.Helper()
	return w.join(sock.From{}, w.hosts[1].four, "")
}

// join dials from the first host to an address of the second.
func (w *world) join(from sock.From, to netip.Addr, netdev string) (a, b sock.Conn) {
	w.Helper()
	l := w.hosts[1].listen(to, netdev)
	if to.IsLinkLocalUnicast() {
		to = to.WithZone("eth0")
	}
	a = w.hosts[0].dial(from, netip.AddrPortFrom(to, l.Addr().Port()))
	b, err := l.Accept()
	w.must(err, l.Close())
	return a, b
}

// wrote writes text.
func (w *world) wrote(c io.Writer, text string) {
	w.Helper()
	if n, err := io.WriteString(c, text); n != len(text) || err != nil {
		w.Fatalf("wrote %d bytes of %d: %v", n, len(text), err)
	}
}

// reads wants to read text.
func (w *world) reads(c io.Reader, text string) {
	w.Helper()
	b := make([]byte, len(text))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != text {
		w.Fatalf("read %q, %v, want %q", b[:n], err, text)
	}
}

// ends wants the stream to end with an error, io.EOF where it ends well.
func (w *world) ends(c io.Reader, want error) {
	w.Helper()
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, want) {
		w.Fatalf("read %d bytes, %v, want %v", n, err, want)
	}
}

// meanwhile calls f on a goroutine; what it returns waits for its end.
func meanwhile(f func()) (over func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}

// A lane is a stream whose calls do not wait, and memory outside the Go heap.
type lane struct {
	*sock.Stream
	w    *world
	mem  *ibv.Memory
	b    []byte
	msg  *sock.Message
	iov  []sock.Vector
	addr uintptr
}

// laneOf makes a lane of a connection, which it closes.
func laneOf(w *world, c sock.Conn) *lane {
	w.Helper()
	s, err := c.Stream()
	w.must(err, c.Close())
	mem, err := ibv.Alloc(1<<20 + 1<<12)
	w.must(err)
	l := &lane{Stream: s, w: w, mem: mem, b: ibv.Carve[byte](mem, 1<<20), msg: &ibv.Carve[sock.Message](mem, 1)[0], iov: ibv.Carve[sock.Vector](mem, 4)}
	l.addr = ibv.AddrOf(&l.b[0])
	return l
}

func (l *lane) close() {
	l.w.Helper()
	l.w.must(l.Close(), l.mem.Free())
}

// sends sends n bytes at a place of the memory.
func (l *lane) sends(at, n int) {
	l.w.Helper()
	l.w.await("room to send", func() bool {
		k, errno := l.Send(l.addr+uintptr(at), n)
		if k > 0 {
			at, n = at+k, n-k
		}
		l.passes(errno)
		return n == 0
	})
}

// receives receives n bytes to a place of the memory.
func (l *lane) receives(at, n int) {
	l.w.Helper()
	l.w.await("bytes", func() bool {
		k, errno := l.Receive(l.addr+uintptr(at), n)
		if k == 0 && errno == 0 {
			l.w.Fatalf("the stream has ended, %d bytes are missing", n)
		}
		if k > 0 {
			at, n = at+k, n-k
		}
		l.passes(errno)
		return n == 0
	})
}

// passes ends the row on an error that does not pass.
func (l *lane) passes(errno unix.Errno) {
	l.w.Helper()
	if errno != 0 && errno != unix.EAGAIN {
		l.w.Fatal(errno)
	}
}
