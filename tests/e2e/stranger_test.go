package e2e

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/tests/require"
	"ncclmesh/transport/control"
	"ncclmesh/transport/discovery"
)

// strangers is a line of three, and a stranger at another cable of the one in the middle.
var strangers = cabling{pairs: "ba ac xa", each: 1}

// A stranger at a cable of a node that relays says, and asks for, what no neighbour would: all of it is refused, counted and told of once,
// nothing of it stays, and a job whose traffic goes through that node does not notice, nor one that looks for its ways meanwhile.
func TestStranger(t *testing.T) {
	for name, key := range map[string]string{"no key": "", "a key": "NCCL_MESH_KEY=the key of these nodes"} {
		for _, kind := range relayKinds {
			t.Run(name+" over "+kind, func(t *testing.T) {
				if key == "" || kind == "rdma" {
					require.Full(t, "the same test with a key over TCP")
				}
				t.Parallel()
				cables, env := relaying(kind, strangers)
				cables.plain += "x"
				env = append(env, "NCCL_MESH_IFNAME=ba,ac,xa", key)
				f := newFabric(t, cables.topology())
				idle := f.idle(append(env, "NCCL_MESH_TIME_SCALE=0.2"), "a")[0]
				j := f.start(spec{nodes: []string{"b", "c"}, env: env, args: f.endless("--work soak --max 256K")})
				j.moves()
				a := idle.rank("a")
				before := held(t, a)

				h := f.helper("x", "stranger", "meddling\n", "E2E_KEYED="+key)
				other := f.start(spec{nodes: []string{"b", "c"}, env: env, args: strings.Fields("--work alltoall --min 8 --max 64K --factor 64 --iters 2 --timeout 150")}).ok() // longer than NCCL_MESH_ROUTE_WAIT: what lacks is said
				if got := other.relays("b -> c"); got != "a" {
					other.errorf("b -> c goes through %q", got)
				}
				h.end()
				idle.returns("a", before)
				j.suffer("moves", "moves")
				j.enough().ok()
				idle.enough().ok()
				reasons := []string{`malformed datagram`, `wrong MAC`, `came through a router`, `too many queries`}
				if key == "" {
					reasons = append(reasons, `no such port here`, `the relay named is another process`, `the route leads back to the node that asked`, `no such circuit is expected here`)
					if kind == "tcp" { // the stranger has no queue pairs
						reasons = append(reasons, `circuits of that kind are not supported here`)
					}
				} else {
					reasons = append(reasons, `a neighbour with another key`)
				}
				for _, reason := range reasons {
					if n := a.count(`NCCL WARN NET/Mesh : .*(refused a datagram.*interface=xa0.*reason="` + reason + `"|a circuit that x asked for was refused: ` + reason + `|refused a connection; .* reason="` + reason + `")`); n != 1 {
						idle.errorf("%q was logged %d times", reason, n)
					}
				}
				if got := j.relays("b -> c"); got != "a" {
					j.errorf("b -> c goes through %q", got)
				}
				j.unbroken()
			})
		}
	}
}

// files are what the descriptors of a rank are.
func (j *job) files(node string) (all []string) {
	j.f.t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", j.rank(node).cmd.Process.Pid))
	if err != nil {
		j.fatalf("%v", err)
	}
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil { // else it is closed
			all = append(all, to)
		}
	}
	for _, s := range sockets(j.f.t, j.rank(node).cmd.Process.Pid) {
		all = append(all, fmt.Sprintf("%v -> %v", s.local, s.peer))
		_ = unix.Close(s.fd)
	}
	slices.Sort(all)
	return all
}

// idleThreads is how many threads Go may have made for goroutines that ran at once, and keeps: no more than it runs at once.
const idleThreads = 32

// holdings are how many open files and threads a process has.
type holdings struct{ fds, threads int }

func held(t *testing.T, r *rank) (h holdings) {
	t.Helper()
	for name, n := range map[string]*int{"fd": &h.fds, "task": &h.threads} {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", r.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		*n = len(list)
	}
	return h
}

// returns waits until a rank holds no more than before.
func (j *job) returns(node string, before holdings) {
	j.f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		after := held(j.f.t, j.rank(node))
		if after.fds <= before.fds && after.threads <= before.threads+idleThreads {
			return
		}
		if time.Now().After(deadline) {
			j.fatalf("%s held %+v before and holds %+v after: %v", node, before, after, j.files(node))
		}
	}
}

// end ends a helper, which must find nothing wrong.
func (h *helper) end() {
	h.f.t.Helper()
	err := h.in.Close()
	said, readErr := io.ReadAll(h.out)
	if err := errors.Join(err, readErr, h.cmd.Wait()); err != nil {
		h.f.t.Errorf("%s: %v: %s%s", h.name, err, said, &h.why)
	}
	h.f.t.Logf("%s: %s", h.name, said)
}

func init() { helpers["stranger"] = stranger }

// meddler is a stranger at the other end of a cable.
type meddler struct {
	name   string // of his end of the cable
	own    netip.Addr
	victim *handshake.NeighbourReply
	at     netip.AddrPort // the victim's control port

	mu      sync.Mutex
	dropped int // circuits, by the victim
	maps    int
	refused int
	stood   int
	behind  *handshake.CircuitOpen // leads through the victim to a node behind it, as the victim's map says
}

// stranger meddles until its input ends.
func stranger() error {
	m := &meddler{name: "xa0", own: netip.MustParseAddr("192.168.21.1")}
	if err := m.queryNeighbours(); err != nil {
		return fmt.Errorf("neighbour queries: %w", err)
	}
	fmt.Println("meddling")
	if os.Getenv("E2E_KEYED") != "" {
		if err := m.keyless(); err != nil {
			return fmt.Errorf("without the key: %w", err)
		}
	} else if err := m.neighbour(); err != nil {
		return fmt.Errorf("as a neighbour: %w", err)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// queryNeighbours sends datagrams of all kinds, and finds out who answers.
func (m *meddler) queryNeighbours() error {
	to := netip.MustParseAddrPort(fmt.Sprintf("224.0.0.254:%d", discovery.UDPPort))
	socket := func(hops int) (*net.UDPConn, error) {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(m.own, 0)))
		if err != nil {
			return nil, err
		}
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		cerr := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hops), unix.BindToDevice(int(fd), m.name))
		})
		return c, errors.Join(cerr, err)
	}
	c, err := socket(255)
	if err != nil {
		return err
	}
	defer c.Close()
	far, err := socket(64)
	if err != nil {
		return err
	}
	defer far.Close()
	secret := handshake.NeighbourSecret([]byte(strings.TrimPrefix(os.Getenv("E2E_KEYED"), "NCCL_MESH_KEY="))) // which only this part knows
	ask := func(s handshake.Secret) (handshake.NeighbourNonce, []byte) {
		q := handshake.NeighbourQuery{Nonce: handshake.NewNeighbourNonce(nil), Process: handshake.NewProcessID(nil), Node: handshake.NodeID(handshake.NewNeighbourNonce(nil)), Name: m.name}
		raw, err := handshake.SealNeighbourQuery(s, &q)
		if err != nil {
			panic(err)
		}
		return q.Nonce, raw
	}
	_, foreign := ask(handshake.NeighbourSecret([]byte("another")))
	nonce, right := ask(secret)
	noise := make([]byte, 1400)
	rand.Read(noise)
	for _, b := range [][]byte{nil, noise[:1], noise[:100], noise, right[:40], right[:len(right)-1], append(append([]byte{}, right...), 0), foreign} {
		if _, err := c.WriteToUDPAddrPort(b, to); err != nil {
			return err
		}
	}
	if _, err := far.WriteToUDPAddrPort(right, to); err != nil {
		return err
	}
	if _, err := c.WriteToUDPAddrPort(right, to); err != nil {
		return err
	}
	for buf := make([]byte, 2048); m.victim == nil; {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return fmt.Errorf("a right question was not answered: %w", err)
		}
		if said, err := handshake.OpenNeighbourReply(secret, buf[:n]); err == nil && said.Nonce == nonce {
			m.victim, m.at = &said, netip.AddrPortFrom(from.Addr().Unmap(), said.Control)
		}
	}
	for range 3000 { // the same again and again
		if _, err := c.WriteToUDPAddrPort(right, to); err != nil {
			return err
		}
	}
	return nil
}

// endpoint is a control plane of the stranger's.
func (m *meddler) endpoint(key string, node handshake.NodeID, process handshake.ProcessID, message func(*control.Session, handshake.Message)) (*control.Endpoint, error) {
	secret := handshake.NeighbourSecret([]byte(key))
	return control.New(control.Config{
		Process: process, Node: node, Hostname: "x", Addrs: []netip.Addr{m.own}, NeighbourSecret: &secret, Cable: func(string) bool { return true },
		Ports: func() []handshake.Port {
			return []handshake.Port{{Netdev: m.name, SpeedMbps: 10000, Addrs: []handshake.PortAddr{{Addr: netip.AddrFrom16(m.own.As16()), PrefixLen: 24}}}}
		},
		Message: message, Busy: func(*control.Session) bool { return false },
	})
}

func (m *meddler) dial(e *control.Endpoint, key string) (*control.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return e.DialNeighbour(ctx, m.victim.Process, handshake.NeighbourSecret([]byte(key)), m.at, m.name)
}

// keyless tries to get a session without the key.
func (m *meddler) keyless() error {
	e, err := m.endpoint("", handshake.NodeID{1}, handshake.NewProcessID(nil), nil)
	if err != nil {
		return err
	}
	defer e.Close()
	for _, key := range []string{"", "", "another"} {
		_, err := m.dial(e, key)
		var reject *handshake.RejectError
		if !errors.As(err, &reject) || reject.Code != handshake.RejectKey {
			return fmt.Errorf("with key %q: %w", key, err)
		}
	}
	return nil
}

// lies is a map that nothing is true of.
func (m *meddler) lies(query [16]byte, own handshake.MapNode) *handshake.Map {
	all := []handshake.MapNode{own}
	for i := range handshake.MaxMapNodes - 1 {
		n := handshake.MapNode{Process: handshake.NewProcessID(nil), Node: handshake.NodeID{0xee, byte(i)}, Hostname: fmt.Sprintf("lie%d", i), Dedicated: i%2 == 0}
		if i == 3 {
			n.Node = m.victim.Node // which knows better
		}
		for k := range handshake.MaxMapLinks {
			peer := handshake.NodeID{0xee, byte(k)} // one of them itself
			if k%4 == 0 {
				peer = own.Node
			} else if k%4 == 1 {
				peer = m.victim.Node
			}
			n.Links = append(n.Links, handshake.MapLink{Port: uint8(k), Name: fmt.Sprintf("l%d", k), Mbps: 1 << 31, Peer: peer, PeerName: fmt.Sprintf("l%d", i)})
		}
		all = append(all, n)
	}
	return &handshake.Map{Query: query, Nodes: all}
}

// neighbour has a session, as whoever is at the other end of a cable may where there is no key, and abuses it.
func (m *meddler) neighbour() error {
	own := handshake.MapNode{Process: handshake.NewProcessID(nil), Node: handshake.NodeID{0xaa}, Hostname: "x"}
	for k := range handshake.MaxMapLinks {
		own.Links = append(own.Links, handshake.MapLink{Name: m.name, Mbps: 1 << 31, Peer: handshake.NodeID{0xee, byte(k)}, PeerName: "l0"})
	}
	own.Links[0] = handshake.MapLink{Name: m.name, Mbps: 1 << 31, Peer: m.victim.Node, PeerName: m.victim.Name}
	e, err := m.endpoint("", own.Node, own.Process, func(s *control.Session, msg handshake.Message) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch msg := msg.(type) {
		case *handshake.MapQuery:
			for range 3 { // one answers it, two nothing
				_ = s.Send(m.lies(msg.Query, own))
			}
		case *handshake.Map:
			m.maps++
			m.look(msg)
		case *handshake.CircuitClose:
			m.dropped++
		case *handshake.CircuitOpened:
			m.stood++
		case *handshake.Refuse:
			m.refused++
		}
	})
	if err != nil {
		return err
	}
	defer e.Close()
	answers, err := discovery.New(discovery.Config{
		Process: own.Process, Node: own.Node, ControlPort: e.Port(), Log: slog.New(slog.DiscardHandler),
		Ports: func() []discovery.Port { return []discovery.Port{{Netdev: m.name}} },
	})
	if err != nil {
		return err
	}
	defer answers.Close()
	s, err := m.dial(e, "")
	if err != nil {
		return err
	}
	asked, drops, err := m.abuse(s, own)
	if err != nil {
		return err
	}
	return m.settle(s, asked, drops)
}

// look finds a node behind the victim in its map.
func (m *meddler) look(said *handshake.Map) {
	for _, n := range said.Nodes {
		for _, l := range said.Nodes[0].Links {
			if m.behind == nil && n.Hostname == "c" && l.Peer == n.Node {
				m.behind = &handshake.CircuitOpen{
					Kind: handshake.LaneTCP, Route: []handshake.Hop{{Process: m.victim.Process, Node: m.victim.Node, In: m.victim.Port, Out: l.Port}},
					Final: handshake.Final{Process: n.Process, Node: n.Node, Port: n.Links[0].Port},
				}
			}
		}
	}
}

// wayOn is what look has found.
func (m *meddler) wayOn() (*handshake.CircuitOpen, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		c := m.behind
		m.mu.Unlock()
		if c != nil {
			return c, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.New("no map of the victim's has the node behind it")
		}
	}
}

// abuse says everything in a session that a neighbour must not. It returns how many answers to questions for the map, and how many Drops, are
// to come.
func (m *meddler) abuse(s *control.Session, own handshake.MapNode) (maps, drops int, err error) {
	send := func(msg handshake.Message) {
		if err == nil {
			err = s.Send(msg)
		}
	}
	query := func(n int) (q [16]byte) {
		binary.NativeEndian.PutUint64(q[:], uint64(n+1))
		return q
	}
	half := handshake.Lane{Kind: handshake.LaneTCP, Addr: netip.AddrFrom16(m.own.As16())}
	for i := range 700 { // and 10^5 entries that nobody wants
		send(m.lies(query(1<<20+i), own))
	}
	for i := range 300 {
		ask := &handshake.MapQuery{Query: query(i / 3)} // each thrice
		for k := range i % handshake.MaxMapNodes {
			ask.Asked = append(ask.Asked, handshake.NodeID{0xdd, byte(i), byte(k)})
		}
		send(ask)
		maps++
	}
	for _, strange := range []handshake.Message{
		&handshake.CircuitOpened{Circuit: 77, Half: half}, &handshake.CircuitClose{Circuit: 78, Reason: "no"}, &handshake.CircuitClose{Circuit: 79, Asker: true, Reason: "no"},
		&handshake.Validated{Conn: 5}, &handshake.LaneDown{Conn: 6, Reason: "no"}, &handshake.Report{Conn: 7}, &handshake.Want{Conn: 9}, &handshake.Window{Conn: 10, ID: 1, Size: 8}, &handshake.WindowEnd{Conn: 11, ID: 1}, &handshake.Refuse{Conn: 8, Text: "no"}, &handshake.Ports{},
	} {
		send(strange)
	}
	send(&handshake.Open{Conn: 1})
	send(&handshake.CircuitDeliver{Circuit: 1, Token: 99, Half: half})
	drops++
	number := uint32(100)
	carry := func(change func(*handshake.CircuitOpen)) {
		number++
		c := &handshake.CircuitOpen{
			Circuit: number, Kind: handshake.LaneTCP, Half: half,
			Route: []handshake.Hop{{Process: m.victim.Process, Node: m.victim.Node, In: m.victim.Port}},
			Final: handshake.Final{Process: handshake.ProcessID{1}, Node: handshake.NodeID{0xbb}},
		}
		change(c)
		send(c)
		drops++
	}
	for range 20 {
		carry(func(c *handshake.CircuitOpen) { c.Route[0].Out = 200 })
		carry(func(c *handshake.CircuitOpen) { c.Route[0].In = 99 })
		carry(func(c *handshake.CircuitOpen) { c.Route[0].Process[0]++ })
		carry(func(c *handshake.CircuitOpen) { c.Final.Node = own.Node })
		carry(func(c *handshake.CircuitOpen) { c.Kind = handshake.LaneVerbs })
		carry(func(c *handshake.CircuitOpen) {
			c.Route = append(c.Route, handshake.Hop{Process: handshake.ProcessID{9}, Node: handshake.NodeID{9}})
		})
	}
	behind, lost := m.wayOn()
	if lost != nil {
		return 0, 0, lost
	}
	for i := range 1000 { // to nobody; and to a node behind the victim, which expects nobody
		carry(func(c *handshake.CircuitOpen) {
			if i%2 == 0 {
				c.Route, c.Final = slices.Clone(behind.Route), behind.Final
				c.Final.Token = uint64(i)
			}
		})
	}
	return maps, drops, err
}

// settle waits until all has been answered, and sees that the session lives.
func (m *meddler) settle(s *control.Session, maps, drops int) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		gotMaps, gotDrops, refused, stood := m.maps, m.dropped, m.refused, m.stood
		m.mu.Unlock()
		said := fmt.Sprintf("%d of %d maps, %d of %d circuits dropped, %d of which stood before, %d of 1 connections refused", gotMaps, maps, gotDrops, drops, stood, refused)
		if gotMaps == maps && gotDrops == drops && refused == 1 && stood == 0 {
			fmt.Println(said)
			return nil
		}
		if !s.Alive() || time.Now().After(deadline) {
			return fmt.Errorf("the session lives: %v; %s", s.Alive(), said)
		}
	}
}
