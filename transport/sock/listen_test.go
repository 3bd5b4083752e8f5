package sock

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A listener marks what it accepts, and ends an Accept that waits.
func TestAccept(t *testing.T) {
	ln, err := Kernel{}.Listen(netip.MustParseAddrPort("127.0.0.1:0"), "", PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		c   Conn
		err error
	}
	results := make(chan result)
	go func() {
		for {
			c, err := ln.Accept()
			results <- result{c, err}
			if err != nil {
				return
			}
		}
	}()
	for range 3 { // it waits for each
		peer, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		if diff := cmp.Diff(peer.LocalAddr().String(), r.c.Remote().String()); diff != "" {
			t.Errorf("remote address (-want +got):\n%s", diff)
		}
		if n := len(marked()); n != 2 { // the listener is the other
			t.Errorf("%d descriptors are marked", n)
		}
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := r.c.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		if err := errors.Join(r.c.Close(), peer.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-results; !errors.Is(r.err, net.ErrClosed) {
		t.Errorf("accept at a closed listener: %v", r.err)
	}
	if n := len(marked()); n != 0 {
		t.Errorf("%d descriptors are marked at the end", n)
	}
}
