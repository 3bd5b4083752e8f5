package transport_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Nodes with and without RDMA may be mixed: each pair uses the best lanes that it can, and a node whose RDMA is not
// used logs that once.
func TestMixed(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var log transporttest.Log
		rdma := transporttest.New(t, log.Takes(slog.LevelInfo))
		also := transporttest.New(t)
		plain := transporttest.NewTCP(t, 1)
		const warning = "talk over TCP, slower than RDMA"
		for _, tt := range []struct {
			name     string
			from, to *transport.Transport
			want     lane.Kind
			warnings int
		}{
			{"both have RDMA", rdma, also, lane.Verbs, 0},
			{"the receiver has none", rdma, plain, lane.TCP, 1},
			{"again", rdma, plain, lane.TCP, 1},
			{"the sender has none", plain, rdma, lane.TCP, 1},
		} {
			s, r := transporttest.Connect(t, tt.from, tt.to)
			for _, b := range []*conn.Conn{&s.Conn, &r.Conn} {
				if kinds := transporttest.Kinds(b); !slices.Equal(kinds, []lane.Kind{tt.want}) {
					t.Errorf("%s: the lanes are %v, want %v", tt.name, kinds, tt.want)
				}
			}
			sm, sb := transporttest.Memory(t, 1<<20)
			rm, rb := transporttest.Memory(t, 1<<20)
			transporttest.Fill(sb, 3)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
			rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: 1 << 20, Region: rg})
			transporttest.Both(t, "message", transporttest.Isend(t, s, sm, 0, 1<<20, 0, sg), rq)
			if !bytes.Equal(sb, rb) {
				t.Errorf("%s: the bytes differ", tt.name)
			}
			transporttest.CloseBoth(t, s, r)
			if n := log.Count(warning); n != tt.warnings {
				t.Errorf("%s: %d warnings, want %d", tt.name, n, tt.warnings)
			}
		}
		if d := rdma.Device(); d.LatencyUs != 0 {
			t.Errorf("a node with RDMA is described as one of TCP: %+v", d)
		}
		if d := plain.Device(); d.LatencyUs == 0 {
			t.Errorf("a node of TCP is described as one with RDMA: %+v", d)
		}
	})
}

// A node with RDMA that only receives, from a node without, logs that too.
func TestMixedReceiver(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var log transporttest.Log
		rdma := transporttest.New(t, log.Takes(slog.LevelInfo))
		plain := transporttest.NewTCP(t, 1, func(o *transport.Options) { o.HostID = "plain" })
		for range 2 {
			s, r := transporttest.Connect(t, plain, rdma)
			transporttest.CloseBoth(t, s, r)
			if n := log.Count("plain talk over TCP, slower than RDMA"); n != 1 || log.Count(": NCCL_MESH_TRANSPORT=tcp leaves out rdma0:1 (p0), rdma1:1 (p1) on plain; plain offers no RDMA port") != 1 {
				t.Errorf("%d warnings, want 1", n)
			}
		}
	})
}

// If the configuration requires RDMA, TCP is not used, and both nodes report the reason for the error.
func TestRDMAOnly(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		rdma := transporttest.New(t, func(o *transport.Options) { o.Transport, o.HostID = transport.TransportRDMA, "rdma" })
		plain := transporttest.NewTCP(t, 1, func(o *transport.Options) { o.HostID = "plain" })
		for _, tt := range []struct {
			from, to *transport.Transport
			names    string
		}{{rdma, plain, "rdma and plain"}, {plain, rdma, "plain and rdma"}} {
			l, h := transporttest.Listen(t, tt.to)
			d := tt.from.Dial(h)
			var err error
			transporttest.Await(t, "the refusal", func() bool {
				_, err = d.Poll()
				return err != nil
			})
			for _, want := range []string{"no path between " + tt.names, "rdma offers RDMA only", "plain TCP only", "Set NCCL_MESH_TRANSPORT=auto on rdma"} {
				if !errors.Is(err, fault.ErrPeer) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %q in it", err, want)
				}
			}
			if err := errors.Join(d.Close(), l.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A node logs at its start that it uses TCP although it has RDMA devices, and why no port can be used.
func TestTCPAlthoughRDMA(t *testing.T) {
	tests := []struct {
		name   string
		change func(*transport.Options)
		err    string
		warns  string
	}{
		{"TCP wanted", func(o *transport.Options) { o.Transport = transport.TransportTCP }, "", "NCCL_MESH_TRANSPORT is tcp, which rules RDMA out"},
		{"no library", func(o *transport.Options) { o.Machine.Verbs, o.Libraries = nil, []string{"none.so"} }, "", "cannot load none.so"},
		{"no library, and RDMA wanted", func(o *transport.Options) {
			o.Machine.Verbs, o.Libraries, o.Transport = nil, []string{"none.so"}, transport.TransportRDMA
		}, "NCCL_MESH_TRANSPORT is rdma, which rules TCP out", ""},
		{"no device, and RDMA wanted", func(o *transport.Options) { o.Machine.Source, o.Transport = plainSource(), transport.TransportRDMA }, "NCCL_MESH_TRANSPORT is rdma, which rules TCP out", ""},
		{"no interface, and TCP wanted", func(o *transport.Options) {
			o.LaneIfs, _ = topology.ParseInterfaces("=none")
			o.Transport = transport.TransportTCP
		}, "NCCL_MESH_IFNAME", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			var log transporttest.Log
			o := transporttest.Options(t)
			log.Takes(slog.LevelInfo)(&o)
			tt.change(&o)
			tr, err := transport.New(o)
			if err == nil {
				err = tr.Close()
				if log.Count("TCP is used, slower than RDMA, although there is ") != 1 || log.Count(tt.warns) != 1 {
					t.Errorf("it does not warn of %q", tt.warns)
				}
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		}))
	}
}

// If the configuration forbids direct paths between nodes, a cable that joins two of them is not used.
func TestRelayOnly(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		only := func(o *transport.Options) {
			o.Relay, o.RouteWait, o.LaneWait = transport.RelayOnly, time.Second, time.Second
		}
		l, h := transporttest.Listen(t, transporttest.New(t, only))
		d := transporttest.New(t, only).Dial(h)
		var err error
		transporttest.Await(t, "the end", func() bool {
			s, failed := d.Poll()
			if err = failed; s != nil {
				t.Fatalf("lanes %v", s.Lanes())
			}
			return err != nil
		})
		if !errors.Is(err, fault.ErrUnreachable) || !strings.Contains(err.Error(), "through other nodes") {
			t.Errorf("error %v", err)
		}
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}
