package transport

import (
	"testing"
	"time"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
)

// A warning is suppressed if the same one was logged a moment ago, and no other.
func TestAgain(t *testing.T) {
	tr := &Transport{lastWarned: map[string]time.Time{"long ago": time.Now().Add(-time.Hour), "soon": time.Now().Add(time.Hour)}}
	for _, tt := range []struct {
		subject string
		want    bool
	}{{"first", false}, {"long ago", false}, {"soon", true}} {
		if got := tr.recently(tt.subject); got != tt.want {
			t.Errorf("%q was warned of: %v, want %v", tt.subject, got, tt.want)
		}
		if last := tr.lastWarned[tt.subject]; !tt.want && time.Since(last) > time.Minute {
			t.Errorf("%q was last warned of at %v", tt.subject, last)
		}
	}
}

// All connections are processed in the order of their numbers, every time.
func TestConnsInOrder(t *testing.T) {
	tr, s := &Transport{conns: map[connKey]*conn.Conn{}}, &control.Session{}
	for i := range uint32(100) {
		c := &conn.Conn{Shared: lane.Shared{ID: i * 7919 % 1000}}
		tr.conns[connKey{s, c.ID}] = c
	}
	last := -1
	for _, c := range tr.connsOf(s) {
		if int(c.ID) <= last {
			t.Fatalf("connection %d comes behind %d", c.ID, last)
		}
		last = int(c.ID)
	}
}
