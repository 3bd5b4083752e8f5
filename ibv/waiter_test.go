package ibv

import (
	"sync"
	"testing"
)

// A waiter returns for an event of a channel, for a wake before or during the wait, and for its time.
func TestWaiter(t *testing.T) {
	p := newPair(t)
	w, err := p.s.NewWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	if w.FD() <= 2 {
		t.Errorf("descriptor %d", w.FD())
	}
	ch, err := p.ctx.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := p.ctx.CreateCQ(8, ch)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := p.pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxSendSGE: 2, Type: IBV_QPT_RC})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.SetNonblock(); err != nil {
		t.Fatal(err)
	}
	channels := []*CompChannel{ch}

	w.Wake()
	w.Wake()
	w.Wait(channels, -1) // both wakes are used up:
	w.Wait(channels, 0)  // it returns by its time alone

	var wg sync.WaitGroup
	wg.Go(w.Wake)
	w.Wait(channels, -1)
	wg.Wait()

	if err := cq.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	if _, err := qp.PostSend(p.write(1, source, target, 8)); err != nil {
		t.Fatal(err)
	}
	w.Wait(channels, -1)
	if n, err := ch.Drain(); n != 1 || err != nil {
		t.Errorf("%d events, %v, want 1, which the waiter did not take", n, err)
	}
	closeAll(t, qp, cq, ch)
}

// A thread looks on for a while after something has come, then it is to wait.
func TestWaiterAgain(t *testing.T) {
	w, err := new(libibverbs).NewWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	for range 2 {
		for range 3 * spinCount {
			if !w.Again(true) {
				t.Fatal("to wait after something was found")
			}
		}
		looks := 1
		for w.Again(false) {
			looks++
		}
		if looks < spinCount || looks%spinCount != 0 {
			t.Errorf("to wait after %d looks, want a multiple of %d", looks, spinCount)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		w.Wake()
		w.Wait(nil, -1)
		w.Again(false)
	}); n != 0 {
		t.Errorf("waiting allocates %v times", n)
	}
}
