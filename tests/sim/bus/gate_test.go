package bus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a gate holds back passes in order once it opens, each by an event of its own.
func TestGate(t *testing.T) {
	var got []string
	log := func(s string) { got = append(got, s) }
	Run(t, 1, func(t *testing.T, b *Bus) {
		s := b.Source("s")
		g := NewGate(b.Source("gate"))
		g.Pass(func() { log("open") })
		g.Wait()
		g.Shut()
		g.Pass(func() { log("first") })
		g.Pass(func() { g.Shut(); log("shuts again") })
		g.Pass(func() { log("third") })
		waited := make(chan struct{})
		go func() { g.Wait(); log("waited"); close(waited) }()
		s.Sleep(time.Second)
		log("a second later")
		g.Open()
		s.Sleep(time.Second)
		log("two seconds later")
		g.Open()
		<-waited
	})
	want := []string{"open", "a second later", "first", "shuts again", "two seconds later", "third", "waited"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what has passed (-want +got):\n%s", diff)
	}
}

// A gate that is to shut at a call shuts at that one, and holds it back.
func TestShutAt(t *testing.T) {
	var got []string
	log := func(s string) { got = append(got, s) }
	Run(t, 1, func(t *testing.T, b *Bus) {
		s := b.Source("s")
		g := NewGate(b.Source("gate"))
		g.ShutAt(2, func() {
			log("shuts")
			s.After(time.Second, "open", func() { log("opens"); g.Open() })
		})
		g.Pass(func() { log("no call") })
		for _, call := range []string{"first", "second", "third"} {
			g.Wait()
			log(call)
		}
	})
	want := []string{"no call", "first", "shuts", "opens", "second", "third"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
}
