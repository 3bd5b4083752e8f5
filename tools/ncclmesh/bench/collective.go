package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"ncclmesh/transport/conn"
)

// Kinds of collectives.
const (
	AllReduce = "all_reduce" // sums of float32, on the processor, round a ring
	AllToAll  = "alltoall"
	SendRecv  = "sendrecv" // to the next rank
)

// ring is a node's connections to all others, by rank.
type ring struct {
	rank  int
	sends []*conn.Sender
	recvs []*conn.Receiver
	c     *connections
}

// between names the connection from a rank to another.
func between(from, to int) string { return fmt.Sprintf("%d to %d", from, to) }

// join connects to all others.
func (a *agent) join(ctx context.Context, j *join) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patient, errors.New("the other ranks do not connect"))
	defer cancel()
	n := len(j.Handles)
	var r run
	for rank, h := range j.Handles {
		if rank != j.Rank {
			r.Sends = append(r.Sends, send{Flow: between(j.Rank, rank), Handle: h})
			r.Recvs = append(r.Recvs, between(rank, j.Rank))
		}
	}
	c, err := a.connect(ctx, &r)
	if err != nil {
		c.close()
		return err
	}
	a.ring = &ring{rank: j.Rank, sends: make([]*conn.Sender, n), recvs: make([]*conn.Receiver, n), c: c}
	for i, rank := 0, 0; rank < n; rank++ {
		if rank != j.Rank {
			a.ring.sends[rank], a.ring.recvs[rank] = c.sends[i], c.recvs[i]
			i++
		}
	}
	return nil
}

// leave closes those connections.
func (a *agent) leave() {
	if a.ring != nil {
		a.ring.c.close()
		a.ring = nil
	}
}

// play takes part in a collective: to warm up, for the time, and once more with contents that
// are checked.
func (a *agent) play(ctx context.Context, p *playing) (_ *played, err error) {
	if a.ring == nil {
		return nil, errors.New("the node has not joined")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patient, errors.New("the other ranks have stopped"))
	defer cancel()
	t := &turn{ring: a.ring, bytes: p.Bytes, n: len(a.ring.sends)}
	begin := map[string]func(context.Context) error{AllReduce: t.allReduce, AllToAll: t.allToAll, SendRecv: t.sendRecv}[p.Kind]
	switch {
	case begin == nil:
		return nil, fmt.Errorf("no collective is called %q", p.Kind)
	case p.Kind == AllToAll && p.Bytes%t.n > 0, p.Kind == AllReduce && p.Bytes%4 > 0:
		return nil, fmt.Errorf("%s of %d bytes cannot be divided among %d ranks", p.Kind, p.Bytes, t.n)
	}
	if t.own, err = newMemory(p.Bytes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.own.free()) }()
	if t.other, err = newMemory(p.Bytes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.other.free()) }()
	if err := t.register(); err != nil {
		return nil, err
	}
	t.fill(p.Kind)
	for range p.Warm {
		if err := begin(ctx); err != nil {
			return nil, err
		}
	}
	begun := time.Now()
	for range p.Times {
		if err := begin(ctx); err != nil {
			return nil, err
		}
	}
	took := time.Since(begun)
	t.fill(p.Kind)
	if err := begin(ctx); err != nil {
		return nil, err
	}
	return &played{Each: took / time.Duration(max(p.Times, 1)), Wrong: t.wrong(p.Kind)}, nil
}

// turn is a collective that is played.
type turn struct {
	*ring
	bytes, n   int
	own, other *memory // what is sent, and summed; what comes
}

func (t *turn) register() error {
	for rank := range t.n {
		if rank == t.rank {
			continue
		}
		err := errors.Join(t.own.in(&t.sends[rank].Conn), t.own.in(&t.recvs[rank].Conn), t.other.in(&t.recvs[rank].Conn))
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) next() int { return (t.rank + 1) % t.n }
func (t *turn) prev() int { return (t.rank + t.n - 1) % t.n }

// chunk is where the part of that number lies, of n; of whole elements of size bytes.
func (t *turn) chunk(i, size int) (off, end int) {
	i = (i%t.n + t.n) % t.n
	count := t.bytes / size
	return i * count / t.n * size, (i + 1) * count / t.n * size
}

const slice = 1 << 20 // bytes of a message of a step, so that sums are made while others come

// step sends a part of own to the next rank, and receives one from the one before; then is
// called with each piece that has come.
func (t *turn) step(ctx context.Context, sendOff, sendEnd int, into *memory, recvOff, recvEnd int, then func(off, end int)) error {
	var in, out []*conn.Request
	for off := recvOff; off < recvEnd || off == recvOff; off += slice {
		q, err := into.recvPart(ctx, t.recvs[t.prev()], off, min(slice, recvEnd-off))
		if err != nil {
			return err
		}
		in = append(in, q)
	}
	for off := sendOff; off < sendEnd || off == sendOff; off += slice {
		q, err := t.own.sendPart(ctx, t.sends[t.next()], off, min(slice, sendEnd-off))
		if err != nil {
			return err
		}
		out = append(out, q)
	}
	for i, q := range in {
		if _, err := finish(ctx, q); err != nil {
			return err
		}
		if off := recvOff + i*slice; then != nil {
			then(off, min(off+slice, recvEnd))
		}
	}
	for _, q := range out {
		if _, err := finish(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// allReduce sums own over all ranks: each part goes round once to be summed, and once more to
// be known.
func (t *turn) allReduce(ctx context.Context) error {
	for s := range t.n - 1 {
		sendOff, sendEnd := t.chunk(t.rank-s, 4)
		recvOff, recvEnd := t.chunk(t.rank-s-1, 4)
		if err := t.step(ctx, sendOff, sendEnd, t.other, recvOff, recvEnd, t.add); err != nil {
			return err
		}
	}
	for s := range t.n - 1 {
		sendOff, sendEnd := t.chunk(t.rank+1-s, 4)
		recvOff, recvEnd := t.chunk(t.rank-s, 4)
		if err := t.step(ctx, sendOff, sendEnd, t.own, recvOff, recvEnd, nil); err != nil {
			return err
		}
	}
	return nil
}

// add adds what has come to own.
func (t *turn) add(off, end int) {
	a, b := t.own.Bytes()[off:end], t.other.Bytes()[off:end]
	for len(a) >= 4 && len(b) >= 4 {
		sum := math.Float32frombits(binary.NativeEndian.Uint32(a)) + math.Float32frombits(binary.NativeEndian.Uint32(b))
		binary.NativeEndian.PutUint32(a, math.Float32bits(sum))
		a, b = a[4:], b[4:]
	}
}

// allToAll sends each rank its part of own; all are of one size.
func (t *turn) allToAll(ctx context.Context) error {
	var all []*conn.Request
	for d := 1; d < t.n; d++ {
		from := (t.rank + t.n - d) % t.n
		off, end := t.chunk(from, 1)
		q, err := t.other.recvPart(ctx, t.recvs[from], off, end-off)
		if err != nil {
			return err
		}
		all = append(all, q)
	}
	for d := 1; d < t.n; d++ {
		to := (t.rank + d) % t.n
		off, end := t.chunk(to, 1)
		q, err := t.own.sendPart(ctx, t.sends[to], off, end-off)
		if err != nil {
			return err
		}
		all = append(all, q)
	}
	if err := finishAll(ctx, all); err != nil {
		return err
	}
	off, end := t.chunk(t.rank, 1)
	copy(t.other.Bytes()[off:end], t.own.Bytes()[off:end])
	return nil
}

// sendRecv sends own to the next rank.
func (t *turn) sendRecv(ctx context.Context) error {
	return t.step(ctx, 0, t.bytes, t.other, 0, t.bytes, nil)
}
