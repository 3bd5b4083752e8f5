package control

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

const cableEnv = "NCCLMESH_TEST_CONTROL_CABLE"

// place is where a node of the fabric can be reached.
type place struct {
	Handle      string
	Process     string
	Port        uint16
	Cable, Link string // addresses of its end of the cable
	Mgmt        string
	Stats       Stats
}

// addrOn is an address of an interface of this node, of IPv6 the one that means something only there.
func addrOn(netdev string, six bool) (found netip.Addr, err error) {
	for start := time.Now(); time.Since(start) < hang; time.Sleep(5 * time.Millisecond) {
		i, err := net.InterfaceByName(netdev)
		if err != nil {
			return found, err
		}
		addrs, err := i.Addrs()
		if err != nil {
			return found, err
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Is6() == six && (!six || p.Addr().IsLinkLocalUnicast()) {
				return p.Addr(), nil
			}
		}
	}
	return found, fmt.Errorf("no address on %s", netdev)
}

// await polls what has no event to wait for.
func await(f func() bool) {
	for start := time.Now(); !f() && time.Since(start) < hang; {
		time.Sleep(time.Millisecond)
	}
}

// onCable is a process at one end of a cable: the one that is given the other's place dials.
func onCable(text string) error {
	var there place
	if err := json.Unmarshal([]byte(text), &there); err != nil {
		return err
	}
	mgmt, err := addrOn(fabric.ManagementIface, false)
	if err != nil {
		return err
	}
	e, err := New(Config{
		Process: handshake.NewProcessID(nil), Hostname: "end", Addrs: []netip.Addr{mgmt}, TimeScale: 0.5, LaneWait: hang,
		NeighbourSecret: &public, Cable: func(netdev string) bool { return netdev == "prev" || netdev == "next" },
		Busy: func(*Session) bool { return false },
	})
	if err != nil {
		return err
	}
	if there.Port != 0 {
		err = errors.Join(dialOver(e, there), e.Close())
		return err
	}
	l, err := e.Listen()
	if err != nil {
		return err
	}
	b := l.Handle()
	cable, err4 := addrOn("prev", false)
	link, err6 := addrOn("prev", true)
	if err := errors.Join(err4, err6); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	for { // a line for each that is read
		out, err := json.Marshal(place{hex.EncodeToString(b[:]), e.cfg.Process.String(), e.Port(), cable.String(), link.String(), mgmt.String(), e.Stats()})
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", out)
		if _, err := in.ReadString('\n'); err == io.EOF {
			return e.Close()
		}
	}
}

// dialOver dials the other end in every way, and says what came of it.
func dialOver(e *Endpoint, there place) error {
	var b [handshake.HandleSize]byte
	var process handshake.ProcessID
	_, err1 := hex.Decode(b[:], []byte(there.Handle))
	_, err2 := hex.Decode(process[:], []byte(there.Process))
	h, err3 := handshake.DecodeHandle(&b)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	neighbour := func(addr, netdev string, wait time.Duration) (*Session, error) {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return nil, err
		}
		if a.Is6() {
			a = a.WithZone(netdev)
		}
		return e.DialNeighbour(ctx, process, public, netip.AddrPortFrom(a, there.Port), netdev)
	}
	invited, err := e.Dial(context.Background(), h)
	if err != nil {
		return err
	}
	var peer *PeerError
	_, err = neighbour(there.Mgmt, fabric.ManagementIface, hang)
	fmt.Println("to the management address: refused", errors.As(err, &peer) && peer.Refused())
	_, err = neighbour(there.Cable, fabric.ManagementIface, 2*time.Second)
	fmt.Println("to the cable's address by the management network: failed", err != nil)
	for _, addr := range []string{there.Cable, there.Link} {
		s, err := neighbour(addr, "next", hang)
		if err != nil {
			return err
		}
		err = s.Send(&handshake.Connected{Conn: 1})
		await(func() bool { return s.Unanswered() == 0 || !s.Alive() })
		fmt.Println("over the cable:", s.Neighbour(), s.RemoteAddr().Addr() == netip.MustParseAddr(addr), s.Alive(), err == nil)
		if addr == there.Cable {
			s.end(nil)
			<-s.ended
			continue
		}
		s.Redial(errors.New("for a test"))
		await(func() bool { return e.Stats().Resumed > 0 || !s.Alive() })
		fmt.Println("resumed:", s.Alive(), e.Stats().Resumed)
		if out, err := exec.Command("ip", "link", "set", "next", "down").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		s.Redial(errors.New("the carrier is lost"))
		<-s.ended
		fmt.Println("without the cable:", s.Alive(), invited.Alive())
	}
	_, err = neighbour(there.Link, "next", time.Second)
	fmt.Println("dialled without the cable:", errors.As(err, &peer) && strings.Contains(err.Error(), "check the cable at next"))
	return invited.Send(&handshake.Connected{Conn: 2})
}

// TestCable dials a neighbour over a real cable, and where there is none.
func TestCable(t *testing.T) {
	dir, err := fabric.Build("fakeverbs", "fakeverbs")
	if err == nil {
		var f *fabric.Fabric
		if f, err = fabric.Up(fabric.Tools(dir), fabric.Ring("a", "b").Topology()); err == nil {
			defer func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}()
			overCable(t, f)
			return
		}
	}
	if !errors.Is(err, fabric.ErrUnable) {
		t.Fatal(err)
	}
	require.Skip(t, require.Netns, err.Error())
}

func overCable(t *testing.T, f *fabric.Fabric) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	var said strings.Builder
	b := f.Command(ctx, "b", os.Args[0])
	b.Env = append(b.Env, cableEnv+"={}")
	b.Stderr = &said
	in, err1 := b.StdinPipe()
	out, err2 := b.StdoutPipe()
	if err := errors.Join(err1, err2, b.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := b.Wait(); err != nil {
			t.Errorf("%v: %s", err, &said)
		}
	}()
	lines := bufio.NewReader(out)
	where, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	a := f.Command(ctx, "a", os.Args[0])
	a.Env = append(a.Env, cableEnv+"="+where)
	got, err := a.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	want := `to the management address: refused true
to the cable's address by the management network: failed true
over the cable: true true true true
over the cable: true true true true
resumed: true 1
without the cable: false true
dialled without the cable: true
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	var there place
	if where, err = lines.ReadString('\n'); err == nil {
		err = json.Unmarshal([]byte(where), &there)
	}
	if err != nil {
		t.Fatal(err)
	}
	if there.Stats.Accepted != 3 || there.Stats.Refused[reasonCable] != 1 {
		t.Errorf("at the other end: %+v", there.Stats)
	}
}
