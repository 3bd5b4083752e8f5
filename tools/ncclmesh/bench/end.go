package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Waits of who looks for news: a processor's full attention at first, as latency is measured
// with it, and little when nothing comes.
const (
	attention = time.Millisecond
	nap       = 50 * time.Microsecond
)

// await calls f until it is true.
func await(ctx context.Context, f func() (bool, error)) error {
	begun := time.Now()
	for n := 0; ; n++ {
		if ok, err := f(); ok || err != nil {
			return err
		}
		if n%64 != 63 {
			runtime.Gosched()
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(begun) > attention {
			time.Sleep(nap)
		}
	}
}

// memory is a buffer that both halves of connections may use. It lies outside the Go heap.
type memory struct {
	*ibv.Memory
	regions map[*conn.Conn]*lane.Region
}

func newMemory(bytes int) (*memory, error) {
	m, err := ibv.Alloc(max(bytes, 1))
	if err != nil {
		return nil, err
	}
	return &memory{m, map[*conn.Conn]*lane.Region{}}, nil
}

// in registers the memory with a connection.
func (m *memory) in(c *conn.Conn) error {
	r, err := c.RegMR(lane.HostMemory, m.Addr(), uintptr(m.Len()))
	if err == nil {
		m.regions[c] = r
	}
	return err
}

// free gives everything back. What is outstanding in it ends its connection when data comes.
func (m *memory) free() error {
	var errs []error
	for c, r := range m.regions {
		errs = append(errs, c.DeregMR(r))
	}
	if err := errors.Join(errs...); err != nil {
		return err // it stays mapped
	}
	return m.Free()
}

// sendPart and recvPart begin to move bytes of the memory.
func (m *memory) sendPart(ctx context.Context, s *conn.Sender, off, n int) (q *conn.Request, err error) {
	err = await(ctx, func() (bool, error) {
		q, err = s.Isend(m.Addr()+uintptr(off), n, 0, m.regions[&s.Conn])
		return q != nil, err
	})
	return q, err
}

func (m *memory) recvPart(ctx context.Context, r *conn.Receiver, off, n int) (q *conn.Request, err error) {
	buffers := []conn.Buffer{{Addr: m.Addr() + uintptr(off), Size: n, Region: m.regions[&r.Conn]}}
	err = await(ctx, func() (bool, error) {
		q, err = r.Irecv(buffers)
		return q != nil, err
	})
	return q, err
}

// finish waits for a request, and returns the bytes that it has moved.
func finish(ctx context.Context, q *conn.Request) (n int, err error) {
	var sizes conn.Sizes
	err = await(ctx, func() (bool, error) { return q.Test(&sizes) })
	return int(sizes[0]), err
}

// finishAll waits for all requests, and asks for each of them again and again: a send that nobody asks for may not go on, and the
// other side waits for it.
func finishAll(ctx context.Context, all []*conn.Request) error {
	var sizes conn.Sizes
	left := slices.Clone(all)
	return await(ctx, func() (bool, error) {
		var err error
		left = slices.DeleteFunc(left, func(q *conn.Request) bool {
			if err != nil {
				return false
			}
			var done bool
			done, err = q.Test(&sizes)
			return done
		})
		return len(left) == 0, err
	})
}

// pattern writes what a message of that number holds.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
}

// wrong counts the bytes that are not the pattern's.
func wrong(b []byte, seed int) (n int64) {
	for i := range b {
		if b[i] != byte(i*7+i>>8*13+seed) {
			n++
		}
	}
	return n
}

// carriers says what carries a connection, and what this side's ports allow, in Mb/s.
func carriers(c *conn.Conn) (lanes string, allowed int) {
	c.Lock()
	defer c.Unlock()
	var ports []topology.Port
	var names []string
	for _, l := range c.Lanes() {
		if !l.InService() {
			continue
		}
		now := l.Port.Now()
		if !slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Short() == now.Short() }) {
			ports = append(ports, *now)
		}
		kind := "RDMA"
		if l.Port.Kind() == lane.TCP {
			kind = "TCP"
		}
		names = append(names, fmt.Sprintf("%s %s%v", kind, now.Short(), l.Route))
	}
	return strings.Join(slices.Compact(names), ", "), topology.Aggregate(ports).Payload
}
