package conn_test

import (
	"bytes"
	"fmt"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// One connection may have lanes of both kinds: messages of up to a mebibyte, many at a time, are shared
// between a queue pair and a socket of the same weight, and arrive whole.
func TestBothKinds(t *testing.T) {
	for _, kinds := range [][]lane.Kind{{lane.Verbs, lane.TCP}, {lane.TCP, lane.Verbs}} {
		t.Run(fmt.Sprint(kinds), transporttest.Simulated(func(t *testing.T) {
			s, r := transporttest.ConnectOver(t, transporttest.New(t), transporttest.New(t), kinds...)
			for i, want := range kinds {
				for _, lanes := range [][]*lane.Lane{s.Lanes(), r.Lanes()} {
					if got := lanes[i]; len(lanes) != len(kinds) || got.Port.Kind() != want || !got.InService() {
						t.Fatalf("%d lanes, of which %v is a %v, %v; want a %v in service", len(lanes), got, got.Port.Kind(), got.State(), want)
					}
				}
			}
			const each, under = 1 << 20, 8
			sm, sb := transporttest.Memory(t, under*each)
			rm, rb := transporttest.Memory(t, under*each)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
			sizes := []int{0, 1, 8, 100, 1000, 4096, 10000, 65535, 65536, 100001, 1 << 17, 1<<18 + 1, 1<<19 - 1, 1 << 19, 1<<20 - 1, 1 << 20}
			total := uint64(0)
			for round := range sizes {
				transporttest.Fill(sb, round)
				clear(rb)
				var all []*conn.Request
				size := func(i int) int { return sizes[(round+i)%len(sizes)] }
				for i := range under {
					all = append(all, transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr() + uintptr(i*each), Size: each, Region: rg}))
				}
				for i := range under {
					all = append(all, transporttest.Isend(t, s, sm, i*each, size(i), 0, sg))
					total += uint64(size(i))
				}
				got := transporttest.Both(t, "all messages", all...)
				for i := range under {
					in, n := rb[i*each:(i+1)*each], size(i)
					if got[i][0] != uint32(n) {
						t.Errorf("round %d: %d bytes arrived of a message of %d", round, got[i][0], n)
					}
					if !bytes.Equal(in[:n], sb[i*each:i*each+n]) {
						t.Errorf("round %d: a message of %d bytes differs", round, n)
					}
					if !bytes.Equal(in[n:], make([]byte, each-n)) {
						t.Errorf("round %d: bytes beyond a message of %d were written", round, n)
					}
				}
			}
			for _, lanes := range [][]*lane.Lane{s.Lanes(), r.Lanes()} {
				a, b := lanes[0].Bytes.Value(), lanes[1].Bytes.Value()
				if a+b != total || min(a, b) < total/8 {
					t.Errorf("the lanes carried %d and %d bytes of %d", a, b, total)
				}
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}
