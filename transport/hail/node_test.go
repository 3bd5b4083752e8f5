package hail

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

const nodeEnv = "NCCLMESH_TEST_HAIL"

// tools is where the launcher of fabrics is; unable why there is none.
var (
	tools  string
	unable error
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(nodeEnv); spec != "" {
		if err := serve(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var dir string
	if dir, unable = fabric.Build("fakeverbs", "fakeverbs"); unable == nil {
		tools = fabric.Tools(dir)
		var f *fabric.Fabric
		if f, unable = fabric.Up(tools, fabric.Ring("a", "b").Topology()); unable == nil {
			unable = f.Close()
		}
	}
	if unable != nil && !errors.Is(unable, fabric.ErrUnable) {
		fmt.Fprintln(os.Stderr, unable)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// spec is a Hailer on a node.
type spec struct {
	Process, Node byte
	Control       uint16
	Dedicated     bool
	Key           []byte
	Ports         []Port
	TimeScale     float64
}

// order is what a node is told to do, after which it shows its state.
type order struct {
	Hail     bool
	Changed  bool
	Until    int    // neighbours, which are asked for again and again
	Lacks    bool   // and somebody is known to lack
	Refused  string // the reason that is waited for
	Refusals uint64 // so many are, of whatever reason
	Own      bool   // a datagram of its own node is
	Close    bool
	Stray    *stray
}

// stray is datagrams that no Hailer would send.
type stray struct {
	At    Port
	Six   bool
	To    netip.AddrPort // the group's port unless it is set
	TTL   int            // 0: as it should be
	Bytes []byte
	Count int
}

// state is what a node shows.
type state struct {
	Neighbours []Neighbour
	Stats      Stats
	Before     held
	After      held
	Log        string
}

// serve is the node's side.
func serve(text string) error {
	var sp spec
	if err := json.Unmarshal([]byte(text), &sp); err != nil {
		return err
	}
	orders := json.NewDecoder(os.Stdin)
	poller()
	now := state{Before: holding()}
	log := &book{}
	h, err := New(Config{
		Process: handshake.ProcessID{sp.Process}, Node: handshake.NodeID{sp.Node}, ControlPort: sp.Control, Dedicated: sp.Dedicated, Key: sp.Key,
		Ports: func() []Port { return sp.Ports }, TimeScale: sp.TimeScale, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		return err
	}
	for {
		now.Neighbours, now.Stats, now.After, now.Log = h.Neighbours(), h.Stats(), holding(), log.String()
		b, err := json.Marshal(now)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
		var o order
		if err := orders.Decode(&o); err == io.EOF {
			return h.Close()
		} else if err != nil {
			return err
		}
		if err := obey(h, o, now.Before); err != nil {
			return err
		}
	}
}

func obey(h *Hailer, o order, before held) error {
	if o.Changed {
		h.Changed()
	}
	if o.Hail {
		h.Hail()
		<-h.Done()
	}
	if o.Close {
		if err := h.Close(); err != nil {
			return err
		}
		_ = eventually(func() bool { return holding().within(before) })
	}
	if o.Stray != nil {
		if err := o.Stray.send(); err != nil {
			return err
		}
	}
	return errors.Join(
		eventually(func() bool {
			if len(h.Neighbours()) < o.Until {
				if o.Lacks {
					h.Lacks()
				}
				h.Hail()
				<-h.Done()
			}
			return len(h.Neighbours()) >= o.Until
		}),
		eventually(func() bool { return o.Refused == "" || h.Stats().Refused[o.Refused] > 0 }),
		eventually(func() bool {
			var n uint64
			for _, times := range h.Stats().Refused {
				n += times
			}
			return n >= o.Refusals
		}),
		eventually(func() bool { return !o.Own || h.Stats().Own > 0 }))
}

func (s *stray) send() error {
	i, err := net.InterfaceByName(s.At.Netdev)
	if err != nil {
		return err
	}
	hops := s.TTL
	if hops == 0 {
		hops = 255
	}
	network, level, options := "udp4", unix.IPPROTO_IP, []int{unix.IP_TTL, unix.IP_MULTICAST_TTL}
	if s.Six {
		network, level, options = "udp6", unix.IPPROTO_IPV6, []int{unix.IPV6_UNICAST_HOPS, unix.IPV6_MULTICAST_HOPS}
	}
	prepare := func(fd int) error {
		for _, o := range options {
			if err := unix.SetsockoptInt(fd, level, o, hops); err != nil {
				return err
			}
		}
		if err := unix.SetsockoptInt(fd, level, map[bool]int{false: unix.IP_MULTICAST_LOOP, true: unix.IPV6_MULTICAST_LOOP}[s.Six], 0); err != nil {
			return err
		}
		if s.Six {
			return errors.Join(unix.BindToDevice(fd, i.Name), unix.SetsockoptInt(fd, level, unix.IPV6_MULTICAST_IF, i.Index))
		}
		return errors.Join(unix.BindToDevice(fd, i.Name), unix.SetsockoptIPMreqn(fd, level, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(i.Index)}))
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		return errors.Join(c.Control(func(fd uintptr) { failed = prepare(int(fd)) }), failed)
	}}
	c, err := lc.ListenPacket(context.Background(), network, ":0")
	if err != nil {
		return err
	}
	defer c.Close()
	to := s.To
	if !to.IsValid() {
		to = netip.AddrPortFrom(group(s.Six), UDPPort)
	}
	if s.Six {
		to = netip.AddrPortFrom(to.Addr().WithZone(i.Name), to.Port())
	}
	for range max(s.Count, 1) {
		if _, err := c.(*net.UDPConn).WriteToUDPAddrPort(s.Bytes, to); err != nil {
			return err
		}
	}
	return nil
}

// node is a process on a node of a fabric.
type node struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	said strings.Builder
}

// raise brings a mesh up.
func raise(t *testing.T, m fabric.Mesh) *fabric.Fabric {
	t.Helper()
	if unable != nil {
		require.Skip(t, require.Netns, unable.Error())
	}
	f, err := fabric.Up(tools, m.Topology())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// start starts a process; it listens when start returns.
func start(t *testing.T, f *fabric.Fabric, name string, sp spec) *node {
	t.Helper()
	if sp.TimeScale == 0 {
		sp.TimeScale = 0.3
	}
	text, err := json.Marshal(sp)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	cmd := f.Command(ctx, name, os.Args[0])
	cmd.Env = append(cmd.Env, nodeEnv+"="+string(text))
	n := &node{t: t}
	cmd.Stderr = &n.said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.in, n.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		defer cancel()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node %s: %v\n%s", name, err, &n.said)
		}
	})
	n.state()
	return n
}

func (n *node) state() (s state) {
	n.t.Helper()
	line, err := n.out.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &s)
	}
	if err != nil {
		n.t.Fatalf("%v: %q\n%s", err, line, &n.said)
	}
	return s
}

// do gives an order and returns what the node shows then.
func (n *node) do(o order) state {
	n.t.Helper()
	if err := json.NewEncoder(n.in).Encode(o); err != nil {
		n.t.Fatal(err)
	}
	return n.state()
}

// on runs a program on a node.
func on(t *testing.T, f *fabric.Fabric, node, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	cmd := f.Command(ctx, node, program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}
