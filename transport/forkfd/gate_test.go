package forkfd

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDoWaitsForFork(t *testing.T) {
	gate.forking.Store(1)
	var ran atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		Do(func() { ran.Store(true) })
	}()
	time.Sleep(20 * time.Millisecond)
	if ran.Load() {
		t.Error("ran during a fork")
	}
	gate.forking.Store(0)
	<-done
	if !ran.Load() || gate.inside.Load() != 0 {
		t.Errorf("after the fork: ran %v, %d inside", ran.Load(), gate.inside.Load())
	}
	Do(func() {
		if gate.inside.Load() != 1 {
			t.Error("a fork would not wait")
		}
	})
}

func TestAccept(t *testing.T) {
	ln, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), "", PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		c   *net.TCPConn
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
		if diff := cmp.Diff(peer.LocalAddr().String(), r.c.RemoteAddr().String()); diff != "" {
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
		ClearConn(r.c)
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
