package board

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
)

// A request's handle contains the lower bits of its generation, which recur. A result that C took long ago does
// not count as the result of a later generation with the same bits.
func TestGenerationsDoNotComeAgain(t *testing.T) {
	var b Board
	if err := b.Open(0); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const handles = 1 << 11 // generations that a handle tells apart
	w := b.words.Load()
	b.Begin(9, 5)
	b.Done(9, 5)
	w.Consumers[9].Taken.Store(w.Answers[9].State.Load() >> 1)
	if !b.Taken(9, 5) || b.Outstanding(9) != 0 {
		t.Errorf("taken: %v, outstanding in generation %d", b.Taken(9, 5), b.Outstanding(9))
	}
	for gen := uint64(6); gen <= 5+2*handles; gen++ {
		b.Begin(9, gen)
		if b.Taken(9, gen) || b.Outstanding(9) != gen {
			t.Fatalf("generation %d: taken %v, outstanding %d", gen, b.Taken(9, gen), b.Outstanding(9))
		}
		b.Done(9, gen)
		if b.Taken(9, gen) || b.Outstanding(9) != gen {
			t.Fatalf("generation %d, done: taken %v, outstanding %d", gen, b.Taken(9, gen), b.Outstanding(9))
		}
		b.End(9)
		if b.Outstanding(9) != 0 {
			t.Fatalf("generation %d is outstanding after its end", gen)
		}
	}
}

// The memory of a closed board stays mapped, zeroed, until another connection uses it.
func TestBoardsRest(t *testing.T) {
	before := ibv.Live()
	var a, b Board
	if err := a.Open(0x1000); err != nil {
		t.Fatal(err)
	}
	addr := a.Publish(42)
	w := a.words.Load()
	if addr == 0 || w.Comm.Load() != 42 || w.Ring.Load() != 0x1000 || w.Head.Load() != 1 || w.Disabled.Load() != 0 {
		t.Errorf("board at %#x: comm %d, ring %#x, head %d, come %d", addr, w.Comm.Load(), w.Ring.Load(), w.Head.Load(), w.Disabled.Load())
	}
	copy(a.Sizes(3, 2), []uint32{7, 8})
	a.Done(3, 1)
	if diff := cmp.Diff([]uint32{7, 8}, w.Answers[3].Sizes[:w.Answers[3].N]); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	a.Close()
	a.Close()
	if w.Comm.Load() != 0 || w.Answers[3].State.Load() != 0 {
		t.Errorf("comm %d, state %d of a board that is closed", w.Comm.Load(), w.Answers[3].State.Load())
	}
	// Late writes go to no board.
	if err := b.Open(0); err != nil {
		t.Fatal(err)
	}
	a.Disable()
	a.NotePoll()
	a.SetHead(2)
	a.Begin(1, 1)
	a.Done(1, 1)
	a.End(1)
	if a.Publish(43) != 0 || a.Outstanding(1) != 0 || a.Taken(1, 0) || a.Sizes(1, 1) != nil || a.GrantMisses() != 0 {
		t.Error("a closed board answers")
	}
	o := b.words.Load()
	if o.Disabled.Load() != 0 || o.Polls.Load() != 0 || o.Head.Load() != 1 || o.Comm.Load() != 0 {
		t.Error("somebody else's board was written on")
	}
	b.Close()
	if diff := cmp.Diff(before, ibv.Live()); diff != "" {
		t.Errorf("live (-before +after):\n%s", diff)
	}
}

// A board that is disabled before it has memory is disabled when it is opened.
func TestDisableEarly(t *testing.T) {
	var b Board
	b.Disable()
	if err := b.Open(0); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.words.Load().Disabled.Load() == 0 {
		t.Error("C may answer")
	}
}
