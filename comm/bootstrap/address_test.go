package bootstrap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"ncclmesh/comm/bootstrap"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/sock"
)

const address = "192.168.1.1:5000" // of machine a

func TestJoinByAddress(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 3)
		members := make([]*bootstrap.Member, 3)
		for rank, err := range each(t, 3, func(rank int) (err error) {
			hosts[rank].Clock.Sleep(time.Duration(2-rank) * time.Second) // rank 0 comes last
			members[rank], err = hosts[rank].JoinAddress(address, rank, 3, bootstrap.DefaultTimeout)
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		for rank, err := range each(t, 3, func(rank int) error { return members[rank].Barrier(time.Minute) }) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		leave(t, members)
	})
}

func TestJoinByAddressFails(t *testing.T) {
	lookup := func(_ context.Context, name string) ([]netip.Addr, error) {
		switch name {
		case "node-a":
			return []netip.Addr{netip.MustParseAddr("192.168.1.1")}, nil
		case "node-b":
			return nil, nil
		}
		return nil, errors.New("no such host")
	}
	tests := []struct {
		name    string
		address string
		rank    int
		key     string
		lookup  bool
		kind    error
		words   []string
	}{
		{"no key", address, 1, "", false, fault.ErrUsage, []string{"NCCL_MESH_KEY"}},
		{"no port", "192.168.1.1", 0, key, false, fault.ErrUsage, []string{"want address:port"}},
		{"port 0", "192.168.1.1:0", 0, key, false, fault.ErrUsage, []string{"from 1 to 65535"}},
		{"a name where names are not looked up", "node-a:5000", 1, key, false, fault.ErrUsage, []string{`"node-a" is not an IP address`}},
		{"a name of nobody", "node-z:5000", 1, key, true, fault.ErrUsage, []string{"node-z", "no such host"}},
		{"a name without an address", "node-b:5000", 1, key, true, fault.ErrUsage, []string{`no address of "node-b" is known: the name has none`}},
		{"an address of another node", "192.168.1.2:5000", 0, key, false, fault.ErrUsage, []string{"an address of its own node"}},
		{"nobody listens", "node-a:5000", 1, key, true, fault.ErrUnreachable, []string{"rank 1 cannot join at node-a:5000", "nobody listens there"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			h := newHost(t)
			h.Key = tt.key
			if tt.lookup {
				h.Lookup = lookup
			}
			_, err := h.JoinAddress(tt.address, tt.rank, 2, 5*time.Second)
			check(t, "joining", err, tt.kind, tt.words...)
		}))
	}
}

// A process without the key gets nothing: neither one of the job with another key, nor one that sends anything else.
func TestNobodyJoinsWithoutTheKey(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		hosts[1].Key = "another sixteen letters"
		errs := each(t, 3, func(i int) error {
			switch i {
			case 0:
				_, err := hosts[0].JoinAddress(address, 0, 2, 10*time.Second)
				return err
			case 1:
				hosts[1].Clock.Sleep(time.Second)
				_, err := hosts[1].JoinAddress(address, 1, 2, 10*time.Second)
				return err
			}
			hosts[1].Clock.Sleep(2 * time.Second)
			c, err := hosts[1].Network.Dial(t.Context(), sock.From{}, netip.MustParseAddrPort(address))
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.Write(bytes.Repeat([]byte{0}, 64)); err != nil {
				return err
			}
			got, err := io.ReadAll(c)
			if len(got) != 4+32+1 || got[36] != 1 {
				return fmt.Errorf("rank 0 answers %x, %w; want a nonce and a refusal", got, err)
			}
			return nil
		})
		check(t, "rank 0", errs[0], fault.ErrUnreachable, "rank 1 of 2 has not joined")
		check(t, "rank 1", errs[1], fault.ErrUsage, "NCCL_MESH_KEY is not the same there")
		if errs[2] != nil {
			t.Error(errs[2])
		}
	})
}

// Another program at the address is not taken for rank 0.
func TestAnotherProgramAtTheAddress(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		l, err := hosts[0].Network.Listen(netip.MustParseAddrPort(address), "", sock.PortRange{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Write(bytes.Repeat([]byte("SSH"), 12)) // the test sees what the rank makes of it
		}()
		_, err = hosts[1].JoinAddress(address, 1, 2, 10*time.Second)
		check(t, "rank 1", err, fault.ErrUsage, "another program than rank 0 listens there")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
