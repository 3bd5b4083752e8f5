package bus

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// crowd is a model with many threads that sleep, draw, pass things on and use timers of their own, some of them of one instant.
func crowd(_ *testing.T, b *Bus) {
	const threads, rounds = 12, 60
	var boxes [threads]chan int
	for i := range boxes {
		boxes[i] = make(chan int, threads*rounds)
	}
	var wg sync.WaitGroup
	for i := range threads {
		s := b.Source(fmt.Sprintf("thread %02d", i))
		line := b.Source(fmt.Sprintf("line %02d", i))
		wg.Go(func() {
			for range rounds {
				switch s.IntN(3) {
				case 0:
					s.Sleep(time.Duration(s.IntN(3)) * time.Microsecond) // often with others
				case 1:
					time.Sleep(time.Duration(1+s.IntN(3)) * time.Microsecond)
				case 2:
					to := boxes[s.IntN(threads)]
					line.After(line.Between(0, 3)*time.Microsecond, "deliver", func() { to <- i })
				}
				select {
				case from := <-boxes[i]:
					s.Sleep(time.Duration(from))
				default:
				}
			}
		})
	}
	wg.Wait()
}

func TestOneSeedIsOneHistory(t *testing.T) {
	var want Summary
	for i := range 20 {
		got := Run(t, 5, crowd)
		if i == 0 {
			want = got
		} else if got != want {
			t.Fatalf("run %d was %+v, the first %+v", i, got, want)
		}
	}
	if want.Events < 200 {
		t.Errorf("only %d events", want.Events)
	}
	if other := Run(t, 6, crowd); other.Hash == want.Hash {
		t.Error("another seed gave the same history")
	}
}

// Events of one instant are released in the order of their sources' names, whoever asked first, a nanosecond apart.
func TestInstantsNeverCoincide(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bus) {
		type release struct {
			Name string
			At   time.Duration
		}
		var got, want []release
		var wg sync.WaitGroup
		at := b.Now() + time.Millisecond
		for i := range 50 {
			s := b.Source(fmt.Sprintf("s%02d", i))
			for n := range 2 {
				want = append(want, release{s.Name(), at + time.Duration(2*i+n)})
			}
			wg.Go(func() {
				for range 2 {
					s.After(time.Millisecond, "", func() { got = append(got, release{s.Name(), b.Now()}) })
				}
			})
		}
		wg.Wait()
		b.Source("end").Sleep(2 * time.Millisecond)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// What timers of the instant start comes before the event, and its consequences as well.
func TestTimersComeFirst(t *testing.T) {
	for range 20 {
		Run(t, 1, func(t *testing.T, b *Bus) {
			var mu sync.Mutex
			var got []string
			note := func(s string) {
				mu.Lock()
				got = append(got, s)
				mu.Unlock()
			}
			early, late := b.Source("early"), b.Source("late")
			late.After(time.Millisecond, "", func() { note("late") })
			time.AfterFunc(time.Millisecond, func() {
				note("timer")
				early.After(0, "", func() { note("early") })
			})
			b.Source("end").Sleep(2 * time.Millisecond)
			if diff := cmp.Diff([]string{"timer", "early", "late"}, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStop(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bus) {
		s := b.Source("s")
		never := s.After(time.Second, "never", func() { t.Error("a stopped event was released") })
		n := 0
		once := s.After(time.Second, "once", func() { n++ })
		if !never.Stop() || never.Stop() {
			t.Error("Stop of an event that is ahead is not true, then false")
		}
		s.Sleep(2 * time.Second)
		if n != 1 || once.Stop() {
			t.Errorf("released %d times; Stop afterwards is true, or not", n)
		}
		s.After(time.Hour, "dropped by Close", func() { t.Error("released after Close") })
	})
}

// A later call for something sooner is heard.
func TestSooner(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bus) {
		s := b.Source("s")
		s.After(time.Hour, "", func() {})
		s.Sleep(0) // and the bus waits for the hour
		begun := b.Now()
		s.Sleep(time.Minute)
		if got := b.Now() - begun; got != time.Minute {
			t.Errorf("a minute took %v", got)
		}
		s.After(-time.Second, "", func() {}) // counts as now
		s.Sleep(0)
		if got := b.Now() - begun; got > time.Minute+time.Microsecond {
			t.Errorf("a negative time took %v", got-time.Minute)
		}
	})
}

func TestLast(t *testing.T) {
	var b *Bus
	s := Run(t, 9, func(t *testing.T, bus *Bus) {
		b = bus
		s := b.Source("clock")
		for i := range shown + 3 {
			s.After(time.Duration(i)*time.Second, fmt.Sprint("tick ", i), func() {})
		}
		b.Source("end").Sleep(time.Hour)
	})
	lines := strings.Split(strings.TrimSpace(b.Last()), "\n")
	if s.Events != shown+4 || len(lines) != shown {
		t.Fatalf("%d events, %d lines", s.Events, len(lines))
	}
	if first := strings.Fields(lines[0]); !cmp.Equal(first, []string{"4s", "clock", "tick", "4"}) {
		t.Errorf("the first line is %q", first)
	}
	if last := strings.Fields(lines[shown-1]); !cmp.Equal(last, []string{"1h0m0s", "end", "wake"}) {
		t.Errorf("the last line is %q", last)
	}
}

// What is asked for in more time than there is comes after everything else.
func TestFarFuture(t *testing.T) {
	Run(t, 1, func(t *testing.T, b *Bus) {
		s := b.Source("s")
		s.Sleep(time.Second)
		far := s.After(math.MaxInt64, "never", func() { t.Error("it came") })
		s.Sleep(time.Hour)
		if !far.Stop() {
			t.Error("it is not to come any more")
		}
	})
}
