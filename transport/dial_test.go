package transport_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
)

// Set-ups given up at any point leave nothing behind.
func TestAbandon(t *testing.T) {
	transporttest.Leaks(t)
	a, b := transporttest.New(t), transporttest.New(t)
	for i := range 20 {
		l, h := transporttest.Listen(t, b)
		d := a.Dial(h)
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		var err error
		if i%2 == 0 {
			err = errors.Join(d.Close(), l.Close())
		} else {
			err = errors.Join(l.Close(), d.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	s, r := transporttest.Connect(t, a, b) // all is well
	transporttest.CloseBoth(t, s, r)
}

// A process may connect to itself.
func TestSelf(t *testing.T) {
	transporttest.Leaks(t)
	a := transporttest.New(t)
	s, r := transporttest.Connect(t, a, a)
	m, b := transporttest.Memory(t, 1<<20)
	sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
	transporttest.Fill(b[:1<<19], 1)
	rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 1<<19, 1<<19, 1, rg))
	transporttest.Done(t, "send", transporttest.Isend(t, s, m, 0, 1<<19, 1, sg))
	transporttest.Done(t, "receive", rq)
	if !bytes.Equal(b[:1<<19], b[1<<19:]) {
		t.Error("the bytes differ")
	}
	transporttest.CloseBoth(t, s, r)
}
