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
