package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/topo"
)

// step is how long an agent of a mesh that does not exist takes for an answer.
const step = time.Second

// pretended are agents of nodes without adapters, whose cables are as they say.
type pretended struct {
	names  []string
	cabled func(a, b int) bool // with a < b
	slow   string              // a node that takes ten steps for each answer
}

func (p *pretended) dial(_ context.Context, host string) (io.ReadWriteCloser, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		_ = fleet.Serve(context.Background(), there, there, fleet.Handlers{ // its asker sees what fails
			gather.Do: func(_ context.Context, q *fleet.Question) error { return p.facts(host, q) },
			topo.Do:   func(_ context.Context, q *fleet.Question) error { return p.cables(host, q) },
		})
	}()
	return here, nil
}

// work answers after a step, and hears the next question.
func (p *pretended) work(host string, q *fleet.Question, answer any, next any) error {
	if time.Sleep(step); host == p.slow {
		time.Sleep(9 * step)
	}
	if err := q.Answer(answer); err != nil {
		return err
	}
	return q.Hear(next)
}

type object map[string]any

func (p *pretended) facts(host string, q *fleet.Question) error {
	var asked gather.Asked
	if err := q.With(&asked); err != nil {
		return err
	}
	var next any
	if err := p.work(host, q, object{"node": facts.Node{Schema: facts.Schema, Name: asked.Name}}, &next); err != nil {
		return err
	}
	return p.work(host, q, object{"tried": object{"clock": time.Now()}}, &next)
}

func (p *pretended) cables(host string, q *fleet.Question) error {
	at := slices.Index(p.names, host)
	var ports, seen []object
	for i := range p.names {
		if a, b := min(i, at), max(i, at); a != b && p.cabled(a, b) {
			ports = append(ports, object{"name": fmt.Sprint("e", i), "cage": fmt.Sprint("e", i), "carrier": true, "cable": true})
			seen = append(seen, object{"port": fmt.Sprint("e", i), "peer": p.names[i], "peerPort": fmt.Sprint("e", at)})
		}
	}
	var next struct {
		Open bool
		Dial [][]byte
	}
	var others struct{ Handles [][]byte }
	if err := p.work(host, q, object{"node": object{"id": host, "handle": []byte{1}, "ports": ports}}, &others); err != nil {
		return err
	}
	answer := object{"sights": object{"tcp": seen}}
	for {
		next.Open, next.Dial = false, nil
		if err := p.work(host, q, answer, &next); err != nil {
			return err
		}
		switch {
		case next.Open:
			answer = object{"opened": object{"handle": []byte(host)}}
		case next.Dial != nil:
			var reached []object
			for _, h := range next.Dial {
				// The routes both ways round the ring.
				to, n := slices.Index(p.names, string(h)), len(p.names)
				var routes []object
				for _, by := range []int{1, n - 1} {
					var via []string
					for i := (at + by) % n; i != to; i = (i + by) % n {
						via = append(via, p.names[i])
					}
					routes = append(routes, object{"via": via, "names": via})
				}
				reached = append(reached, object{"routes": routes})
			}
			answer = object{"reached": reached}
		default:
			return nil
		}
	}
}

// A doctor of many nodes waits as often as one of few: all are asked at once, and connect at once. Nodes without a common cable
// cost two more waits, however many they are; a slow node costs its own time once for each wait.
func TestDoctorAsksAllAtOnce(t *testing.T) {
	full := func(int, int) bool { return true }
	ring := func(n int) func(a, b int) bool {
		return func(a, b int) bool { return b-a == 1 || b-a == n-1 }
	}
	tests := []struct {
		name   string
		nodes  int
		cabled func(a, b int) bool
		slow   string
		want   time.Duration
	}{
		{"one", 1, full, "", 2 * step},
		{"two", 2, full, "", 2 * step},
		{"eight, a cable between each two", 8, full, "", 2 * step},
		{"sixteen, a cable between each two", 16, full, "", 2 * step},
		{"a ring of four", 4, ring(4), "", 4 * step},
		{"a ring of eight", 8, ring(8), "", 4 * step},
		{"a ring of sixteen", 16, ring(16), "", 4 * step},
		{"eight, one of them slow", 8, full, "c", 20 * step},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pretended{cabled: tt.cabled, slow: tt.slow}
				for i := range tt.nodes {
					p.names = append(p.names, string(rune('a'+i)))
				}
				begun := time.Now()
				m, err := lookWith(t.Context(), &fleet.Fleet{Dial: p.dial}, doctorFlags{}, p.names)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took != tt.want || len(m.Nodes) != tt.nodes || m.Lost != nil {
					t.Errorf("%v for %d nodes, %v lost; want %v", took, len(m.Nodes), m.Lost, tt.want)
				}
				proved, ok := m.Map.Get()
				if !ok || len(m.Nodes) > 1 && len(proved.Cables) == 0 {
					t.Fatalf("the map is %+v: %s", proved, m.Map.Because())
				}
				for _, a := range proved.Apart {
					if !a.Tried || a.Error != "" || len(a.Routes) == 0 {
						t.Errorf("%+v", a)
					}
				}
			})
		})
	}
}
