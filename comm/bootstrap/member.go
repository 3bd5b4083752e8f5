package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/turn"
)

// A Member is one rank's place in a job. Its methods may be called from any goroutine; a call waits for the one before.
type Member struct {
	host       *Host
	rank, size int
	listener   *transport.Listener // that the root dials
	seal       *seal

	leaving atomic.Bool // a call that waits returns

	mu     turn.Turn // held while a call waits
	out    outbox
	in     inbox
	number uint64 // of calls so far
	closed bool
	err    error // why the root cannot be reached any more
}

// grace is how long a member waits for the root after its own time-out, so that the root's answer, which names the missing
// ranks, arrives. It is scaled.
const grace = 2 * time.Second

// Join joins the job of an ID as one of size ranks, and returns when all have joined. It fails after the time-out; the error
// names the ranks that are missing.
func (h *Host) Join(id ID, rank, size int, timeout time.Duration) (_ *Member, err error) {
	if size < 1 || size > MaxRanks || rank < 0 || rank >= size {
		return nil, fmt.Errorf("%w: rank %d of %d ranks: there may be 1 to %d, counted from 0", fault.ErrUsage, rank, size, MaxRanks)
	}
	handle, err := id.check()
	if err != nil {
		return nil, err
	}
	m := &Member{host: h, rank: rank, size: size, seal: newSeal(handle.Secret, h.Random)}
	if m.listener, err = h.Transport.Listen(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	deadline := time.Now().Add(timeout + h.Clock.Scaled(grace))
	if err := m.connect(id, handle, deadline); err != nil {
		return nil, fmt.Errorf("rank %d cannot join: %w", rank, err)
	}
	m.out.put((&join{rank: rank, size: size, timeout: timeout, handle: m.listener.Handle()}).encode())
	table, err := m.await(kindTable, 0, deadline)
	if err != nil {
		return nil, fmt.Errorf("rank %d cannot join: %w", rank, err)
	}
	if got, want := len(table)-1, size*handshake.HandleSize; got != want {
		return nil, fmt.Errorf("%w: the root sent %d bytes of handles, want %d", fault.ErrProtocol, got, want)
	}
	return m, nil
}

// connect reaches the root.
func (m *Member) connect(id ID, handle handshake.Handle, deadline time.Time) error {
	if root := m.host.rootOf(id); root != nil {
		if m.out, m.in = root.join(); m.out != nil {
			return nil
		}
	}
	d := m.host.Transport.Dial(handle)
	pace := m.host.newPace()
	for {
		c, err := d.Poll()
		switch {
		case c != nil:
			m.out, err = newConnOutbox(c, m.seal)
			return err
		case errors.Is(err, fault.ErrPeerRefused):
			return fmt.Errorf("the root refuses: %w; the unique id is of a job that has begun or has ended: pass the id that rank 0 has made for this job", err)
		case errors.Is(err, fault.ErrPeerGone):
			return fmt.Errorf("the process that made the unique id is gone: %w; pass the id that rank 0 has made for this job", err)
		case err != nil:
			return fmt.Errorf("the root does not answer: %w", err)
		case time.Now().After(deadline):
			_ = d.Close() // it has made no connection
			return fmt.Errorf("%w: the root on port %d of %v does not answer", fault.ErrUnreachable, handle.Port, handle.Addrs)
		}
		pace.Wait()
	}
}

// Rank returns the member's rank.
func (m *Member) Rank() int { return m.rank }

// Size returns the number of ranks.
func (m *Member) Size() int { return m.size }

// MaxData is how many bytes of all ranks together AllGather exchanges, at most.
const MaxData = maxMessage - 1024

// AllGather sends the rank's part of data to all ranks, and receives theirs. data has one part of the same size for each rank,
// in order; the caller has filled its own. It returns when all ranks have called.
func (m *Member) AllGather(data []byte, timeout time.Duration) error {
	if len(data) == 0 || len(data)%m.size != 0 {
		return fmt.Errorf("%w: all-gather of %d bytes, want a multiple of %d, the number of ranks", fault.ErrUsage, len(data), m.size)
	}
	if len(data) > MaxData {
		return fmt.Errorf("%w: all-gather of %d bytes, at most %d are possible; use windows for more", fault.ErrUsage, len(data), MaxData)
	}
	part := len(data) / m.size
	all, err := m.call(&gather{timeout: timeout, data: data[m.rank*part : (m.rank+1)*part]})
	if err != nil {
		return err
	}
	if len(all) != len(data) {
		return fmt.Errorf("%w: the root sent %d bytes, want %d", fault.ErrProtocol, len(all), len(data))
	}
	copy(data, all)
	return nil
}

// Barrier returns when all ranks have called it.
func (m *Member) Barrier(timeout time.Duration) error {
	_, err := m.call(&gather{barrier: true, timeout: timeout})
	return err
}

var errLeft = fmt.Errorf("%w: the rank has left the job", fault.ErrUsage)

// call makes a call, and returns the data of all ranks.
func (m *Member) call(g *gather) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, errLeft
	case m.err != nil:
		return nil, m.err
	}
	m.number++
	g.number = m.number
	m.out.put(g.encode())
	answer, err := m.await(kindGathered, g.number, time.Now().Add(g.timeout+m.host.Clock.Scaled(grace)))
	if err != nil {
		return nil, fmt.Errorf("rank %d: %s: %w", m.rank, g.call(), err)
	}
	return answer[replyHead:], nil
}

// await waits for an answer of the root. It skips answers to earlier calls, for which the member has not waited long enough.
func (m *Member) await(kind byte, number uint64, deadline time.Time) ([]byte, error) {
	pace := m.host.newPace()
	for {
		b, err := m.poll()
		if err != nil {
			m.err = fmt.Errorf("the root is gone: %w", err)
			return nil, m.err
		}
		if b != nil {
			pace.Reset()
			switch got, err := numberOf(b); {
			case b[0] == kindFailed && got == number:
				return nil, err
			case b[0] == kind && got == number:
				return b, nil
			}
			continue
		}
		if m.leaving.Load() {
			return nil, errLeft
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w: the root, in the process that made the unique id, does not answer", fault.ErrUnreachable)
		}
		pace.Wait()
	}
}

// numberOf returns the number of the call that an answer belongs to, and the error of a failed one.
func numberOf(b []byte) (number uint64, err error) {
	switch {
	case b[0] == kindFailed:
		return decodeFailed(b)
	case b[0] == kindGathered && len(b) >= replyHead:
		return binary.BigEndian.Uint64(b[1:]), nil
	}
	return 0, nil
}

// poll sends, and returns a message that has arrived. If the root has closed the connection, poll still returns the root's last
// message, which explains why.
func (m *Member) poll() ([]byte, error) {
	lost := m.out.poll()
	if m.in == nil {
		c, err := m.listener.Accept()
		if err != nil {
			return nil, errors.Join(lost, err)
		}
		if c == nil {
			return nil, lost
		}
		if m.in, err = newConnInbox(c, m.seal); err == nil {
			err = m.listener.Close() // nobody else has to connect
		}
		if err != nil {
			return nil, err
		}
	}
	b, err := m.in.poll()
	if b != nil {
		return b, nil
	}
	return nil, errors.Join(lost, err)
}

// Interrupt makes a call that waits return an error, and all later ones. Leave does so too.
func (m *Member) Interrupt() { m.leaving.Store(true) }

// Leave ends the membership. A call of this rank that waits returns an error, and so do calls of other ranks. It waits until the root has been notified, for
// a short time.
func (m *Member) Leave() error {
	m.Interrupt()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	if m.err == nil {
		m.out.put([]byte{kindLeave})
		pace := m.host.newPace()
		for deadline := time.Now().Add(m.host.Clock.Scaled(grace)); m.out.poll() == nil && !m.out.idle() && time.Now().Before(deadline); {
			pace.Wait()
		}
	}
	return m.close()
}

// close closes the connections.
func (m *Member) close() error {
	m.closed = true
	return errors.Join(m.listener.Close(), closeAll(m.out, m.in))
}
