package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/draw"
)

// border is how many guard bytes are before and after each buffer, which nobody may write.
const border = 64

// bootstrap is the longest time after which NCCL's bootstrap network has reported a dead rank.
const bootstrap = 20 * time.Second

// A message is a message of a connection, as both ends know it in advance.
type message struct {
	size, room int // bytes of the message, and of the receiver's buffer
	tag        int32
	pause      time.Duration // before it is sent: the sender computes
}

// drawMessages draws the messages of a connection, and the sizes of the groups in which the receiver posts them. With fewer
// messages the first are as before.
func drawMessages(s, grouping *draw.Stream, c *Connection) (all []message, groups []int) {
	for i := range c.Messages {
		m := message{size: s.LogUniform(0, c.Largest), tag: int32(i)}
		m.room = m.size
		if s.Chance(0.3) {
			m.room += s.LogUniform(0, 1<<16) // the buffer may be larger than the message
		}
		if s.Chance(float64(c.Pauses) / 100) {
			m.pause = time.Duration(s.LogUniform(0, 300_000)) * time.Microsecond
		}
		all = append(all, m)
	}
	for left := c.Messages; left > 0; {
		g := 1
		if grouping.Chance(0.5) {
			g += int(grouping.Uint64N(uint64(c.Group)))
		}
		g = min(g, left, c.Group)
		groups = append(groups, g)
		left -= g
	}
	return all, groups
}

// connection is the state that the sender and the receiver of a connection share.
type connection struct {
	name     string
	from, to *Rank
	key      uint64
	messages []message
	groups   []int
	handle   *[ncclnet.HandleSize]byte // nil until the receiver listens
	most     int
	window   int // messages that are under way at most
	memory   string
}

// zero reports whether all bytes are zero.
func zero(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// word returns the 8 bytes that belong at an offset of a message. They follow from the connection's key, the message's number
// and the offset, so that a byte of another place or message is noticed.
func word(key uint64, number, offset int) uint64 {
	v := key + uint64(number)*0x9e3779b97f4a7c15 + uint64(offset)*0xd1342543de82ef95
	v ^= v >> 29
	return v*0xbf58476d1ce4e5b9 | 1
}

func fill(b []byte, key uint64, number int) {
	whole := len(b) &^ 7
	for i := 0; i < whole; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word(key, number, i))
	}
	for i := whole; i < len(b); i++ {
		b[i] = byte(word(key, number, whole) >> (8 * (i - whole)))
	}
}

// wrong returns the offset of the first byte that does not belong where it is, or -1.
func wrong(b []byte, key uint64, number int) int {
	whole := len(b) &^ 7
	for i := 0; i < whole; i += 8 {
		if d := binary.LittleEndian.Uint64(b[i:]) ^ word(key, number, i); d != 0 {
			return i + bits.TrailingZeros64(d)/8
		}
	}
	for i := whole; i < len(b); i++ {
		if b[i] != byte(word(key, number, whole)>>(8*(i-whole))) {
			return i
		}
	}
	return -1
}

// outflow is the sender of a connection.
type outflow struct {
	*connection
	r        *Rank
	comm, mr ncclnet.Handle
	buf      *buffers
	ranges   ranges
	requests []ncclnet.Handle // by number
	begun    func()           // called when the first message is posted
	posted   int
	done     int
	due      time.Duration // when the next message is to be sent; 0: at once
}

func (f *outflow) String() string { return "sender of " + f.name }

func (f *outflow) step() (moved, over bool, err error) {
	if f.comm == 0 {
		return f.connect()
	}
	if err := f.ranges.step(f.r, f.comm); err != nil {
		return false, false, err
	}
	for f.posted < len(f.messages) && f.posted-f.done < f.window {
		m := f.messages[f.posted]
		if f.due == 0 && m.pause > 0 {
			f.due = f.r.world.Bus.Now() + m.pause
		}
		if f.due > f.r.world.Bus.Now() {
			break
		}
		b, addr := f.buf.at(f.posted, m.size)
		fill(b, f.key, f.posted)
		var q ncclnet.Handle
		err := f.r.call("isend", func() (r ncclnet.Result) {
			q, r = f.r.net.Isend(f.comm, addr, m.size, m.tag, f.mr, 0)
			return r
		})
		if err != nil {
			return moved, false, err
		}
		if q == 0 {
			break
		}
		f.requests[f.posted%f.window] = q
		if f.posted++; f.posted == 1 {
			f.begun()
		}
		f.due = 0
		moved = true
	}
	for f.done < f.posted {
		done, sizes, err := f.r.test(f.requests[f.done%f.window])
		if err != nil {
			return moved, false, err
		}
		if !done {
			break
		}
		if want := f.messages[f.done].size; int(sizes[0]) != want {
			return moved, false, fmt.Errorf("message %d was sent with %d bytes, of %d", f.done, sizes[0], want)
		}
		b, _ := f.buf.at(f.done, f.messages[f.done].size)
		clear(b) // a late read of the buffer would send zeros, which the receiver notices
		f.done++
		moved = true
	}
	return moved, f.done == len(f.messages), nil
}

// connect calls connect once if the receiver listens, and registers the buffers when the connection is there.
func (f *outflow) connect() (moved, over bool, err error) {
	if f.handle == nil {
		return false, false, nil
	}
	err = f.r.call("connect", func() (r ncclnet.Result) {
		f.comm, r = f.r.net.Connect(f.r.context, 0, f.handle)
		return r
	})
	if f.comm == 0 || err != nil {
		return false, false, err
	}
	f.buf, f.mr, err = f.r.register(f.comm, f.connection, true)
	return true, false, err
}

func (f *outflow) close() error {
	return f.r.closeHalf("closeSend", f.comm, f.mr, f.buf, &f.ranges, f.r.net.CloseSend)
}

func (f *outflow) ready() bool { return f.comm != 0 }

func (f *outflow) peer() *Rank { return f.to }

// inflow is the receiver of a connection.
type inflow struct {
	*connection
	r            *Rank
	listen       ncclnet.Handle
	comm, mr     ncclnet.Handle
	buf          *buffers
	ranges       ranges
	requests     []received // outstanding, in the order of their posting
	next, posted int        // next group to post; messages posted
	done         int
}

func (f *inflow) ready() bool { return f.comm != 0 }

func (f *inflow) peer() *Rank { return f.from }

// received is the request of an irecv: for n messages, from message first. With GPU memory, an iflush follows it.
type received struct {
	handle   ncclnet.Handle
	first, n int
	bufs     []ncclnet.Buffer
	arrived  bool // the irecv is done
	sizes    ncclnet.Sizes
}

func (f *inflow) String() string { return "receiver of " + f.name }

func (f *inflow) step() (moved, over bool, err error) {
	if f.comm == 0 {
		return f.accept()
	}
	if err := f.ranges.step(f.r, f.comm); err != nil {
		return false, false, err
	}
	for f.next < len(f.groups) && f.posted-f.done+f.groups[f.next] <= f.window {
		n := f.groups[f.next]
		var bufs []ncclnet.Buffer
		for i := range n {
			m := f.messages[f.posted+i]
			_, addr := f.buf.at(f.posted+i, m.room)
			bufs = append(bufs, ncclnet.Buffer{Addr: addr, Size: m.room, Tag: m.tag, MR: f.mr})
		}
		var q ncclnet.Handle
		err := f.r.call("irecv", func() (r ncclnet.Result) {
			q, r = f.r.net.Irecv(f.comm, bufs)
			return r
		})
		if err != nil {
			return moved, false, err
		}
		if q == 0 {
			break
		}
		f.requests = append(f.requests, received{handle: q, first: f.posted, n: n, bufs: bufs})
		f.posted += n
		f.next++
		moved = true
	}
	for len(f.requests) > 0 {
		q := &f.requests[0]
		done, err := f.finish(q)
		if err != nil {
			return moved, false, err
		}
		if !done {
			break
		}
		for i := range q.n {
			if err := f.check(q.first+i, int(q.sizes[i])); err != nil {
				return moved, false, err
			}
		}
		f.requests = f.requests[1:]
		f.done += q.n
		moved = true
	}
	return moved, f.done == len(f.messages), nil
}

// finish reports whether the messages of a request have arrived and are visible to the GPU.
func (f *inflow) finish(q *received) (done bool, err error) {
	if !q.arrived {
		if q.arrived, q.sizes, err = f.r.test(q.handle); !q.arrived || err != nil {
			return false, err
		}
		for i := range q.bufs {
			q.bufs[i].Size = int(q.sizes[i])
		}
		if f.buf.gpu == nil {
			return true, nil
		}
		err = f.r.call("iflush", func() (r ncclnet.Result) {
			q.handle, r = f.r.net.Iflush(f.comm, q.bufs)
			return r
		})
		if err != nil || q.handle == 0 {
			return err == nil, err
		}
	}
	err = f.r.call("test", func() (r ncclnet.Result) {
		done, r = f.r.net.Test(q.handle, nil)
		return r
	})
	return done, err
}

// check compares a message that has arrived with what was sent, and clears its buffer.
func (f *inflow) check(number, size int) error {
	m := f.messages[number]
	if size != m.size {
		return fmt.Errorf("message %d came with %d bytes, %d were sent", number, size, m.size)
	}
	b, _ := f.buf.at(number, size)
	if i := wrong(b, f.key, number); i >= 0 {
		return fmt.Errorf("byte %d of %d of message %d is wrong", i, size, number)
	}
	if !f.buf.bordersIntact(number, size) {
		return fmt.Errorf("bytes outside message %d, of %d bytes, were written", number, size)
	}
	clear(b)
	return nil
}

// accept calls accept once, and registers the buffers when the connection is there. It reports over when the peer is dead and
// NCCL's bootstrap has reported that.
func (f *inflow) accept() (moved, over bool, err error) {
	err = f.r.call("accept", func() (r ncclnet.Result) {
		f.comm, r = f.r.net.Accept(f.listen)
		return r
	})
	if f.comm == 0 || err != nil {
		// The plugin's listener does not know of a peer that died before it called connect; NCCL's bootstrap does.
		return false, f.from.killed.Load() && f.r.world.Bus.Now()-f.from.died > bootstrap, err
	}
	if err := f.r.failed("closeListen", f.r.net.CloseListen(f.listen)); err != nil {
		return false, false, err
	}
	f.buf, f.mr, err = f.r.register(f.comm, f.connection, false)
	return true, false, err
}

func (f *inflow) close() error {
	return f.r.closeHalf("closeRecv", f.comm, f.mr, f.buf, &f.ranges, f.r.net.CloseRecv)
}

// test calls test for a request.
func (r *Rank) test(q ncclnet.Handle) (done bool, sizes ncclnet.Sizes, err error) {
	err = r.call("test", func() (result ncclnet.Result) {
		done, result = r.net.Test(q, &sizes)
		return result
	})
	return done, sizes, err
}

// register allocates buffers for the messages of a connection, and registers them.
func (r *Rank) register(comm ncclnet.Handle, c *connection, sender bool) (*buffers, ncclnet.Handle, error) {
	b, err := r.newBuffers(c.window, c.most, c.memory, sender)
	if err != nil {
		return nil, 0, err
	}
	mr, err := b.register(r, comm, c.memory)
	return b, mr, err
}

// closeHalf deregisters and frees the buffers of a sender or receiver, and closes it. It does nothing where comm is 0.
func (r *Rank) closeHalf(call string, comm, mr ncclnet.Handle, b *buffers, g *ranges, closing func(ncclnet.Handle) ncclnet.Result) error {
	if comm == 0 {
		return nil
	}
	if err := r.failed("deregMr", r.net.DeregMr(comm, mr)); err != nil {
		return err
	}
	if err := r.failed(call, closing(comm)); err != nil {
		return err
	}
	return errors.Join(b.free(), g.free())
}
