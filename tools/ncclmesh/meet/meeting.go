package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/transport/accept"
)

const (
	greeting = 10 * time.Second // that a process may take to say who it is
	waiting  = 64               // connections of one rank, and as many of one address that have not said whose they are
	crowd    = 4 * waiting      // of all addresses
)

// Meeting is rank 0's side. Its methods may be called from any goroutine.
type Meeting struct {
	place   Place
	host    string // this node's
	key     []byte
	at      *net.TCPListener
	limiter accept.Limiter // connections that have not authenticated
	work    sync.WaitGroup

	mu      sync.Mutex
	ranks   map[int]*rank
	changed chan struct{} // closed when a rank has come, and replaced
	refused error         // why somebody was not believed, the last
}

// rank is a process that has come.
type rank struct {
	arrival
	free chan parked // that wait for a question
}

// parked is a connection, and what makes it one with a question.
type parked struct {
	net.Conn
	proof []byte
}

// Open begins to wait for the other ranks. The caller closes the meeting.
func Open(p Place, port int, key string) (*Meeting, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	at, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot wait for the others: %w; another port is chosen with --rank-port, on all ranks", err)
	}
	m := &Meeting{place: p, host: host, key: []byte(key), at: at, limiter: accept.Limiter{Max: crowd, PerSource: waiting}, ranks: map[int]*rank{}, changed: make(chan struct{})}
	m.work.Go(m.accept)
	return m, nil
}

func (m *Meeting) accept() {
	for {
		c, err := m.at.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // of descriptors, mostly
			continue
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		p := m.limiter.Add(c, from)
		if p == nil { // whoever is a rank comes again
			_ = c.Close()
			continue
		}
		m.work.Go(func() {
			if err := m.receive(c, p); err != nil {
				_ = c.Close()
				m.mu.Lock()
				m.refused = fmt.Errorf("%v: %w", from, err)
				m.mu.Unlock()
			}
		})
	}
}

// receive finds out who has come.
func (m *Meeting) receive(c *net.TCPConn, p *accept.Pending) error {
	w := welcome{Schema, nonce()}
	var a arrival
	err := say(c, w)
	if err == nil {
		err = hear(c, greeting, &a)
	}
	if m.limiter.Remove(p) != accept.NotEvicted {
		return nil // and is closed
	}
	switch {
	case err != nil:
		return fmt.Errorf("has not sent its rank: %w", err)
	case !proved(m.key, a.Proof, "rank", w, a):
		return errors.New("has another NCCL_MESH_KEY, or none: all ranks must have the same")
	case a.Rank < 1 || a.Rank >= m.place.Size:
		return fmt.Errorf("says that it is rank %d of %d", a.Rank, m.place.Size)
	case fleet.Check([]string{a.Host}) != nil:
		return fmt.Errorf("says that its node is %q", a.Host)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[a.Rank]
	if r == nil {
		r = &rank{arrival: a, free: make(chan parked, waiting)}
		m.ranks[a.Rank] = r
		close(m.changed)
		m.changed = make(chan struct{})
	}
	select {
	case r.free <- parked{c, prove(m.key, "asker", w, a)}:
		return nil
	default:
		return fmt.Errorf("rank %d has %d connections that nobody needs", a.Rank, waiting)
	}
}

// Hosts waits until all ranks have come, for at most so long, and returns one name for each node: this one's first, as
// [fleet.Here]. A rank that has not come has a name too, and [Meeting.Dial] says of it that it has not.
func (m *Meeting) Hosts(ctx context.Context, within time.Duration) ([]string, error) {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		if m.Missing() == 0 {
			return m.names(), nil
		}
		select {
		case <-changed:
		case <-late.C:
			return m.names(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Missing is how many ranks have not come.
func (m *Meeting) Missing() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.place.Size - 1 - len(m.ranks)
}

// names are those of the nodes.
func (m *Meeting) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := []string{fleet.Here}
	for i := 1; i < m.place.Size; i++ {
		switch r := m.ranks[i]; {
		case r == nil:
			names = append(names, rankName(i))
		case r.Local == 0:
			names = append(names, m.nameOf(r))
		}
	}
	return names
}

// nameOf is the node's own name, unless another has it too.
//
// Preconditions: m.mu is locked.
func (m *Meeting) nameOf(r *rank) string {
	if r.Host == m.host {
		return rankName(r.Rank)
	}
	for _, other := range m.ranks {
		if other != r && other.Local == 0 && other.Host == r.Host {
			return rankName(r.Rank)
		}
	}
	return r.Host
}

func rankName(i int) string { return "rank-" + strconv.Itoa(i) }

// Dial leads to a node's process; it is a [fleet.Fleet]'s.
func (m *Meeting) Dial(ctx context.Context, host string) (io.ReadWriteCloser, error) {
	m.mu.Lock()
	var at *rank
	for _, r := range m.ranks {
		if r.Local == 0 && m.nameOf(r) == host {
			at = r
		}
	}
	refused := m.refused
	m.mu.Unlock()
	if at == nil {
		err := fmt.Errorf("%w: it did not connect to %s (MASTER_ADDR); check that all nodes reach this address, and that no firewall blocks TCP port %d", fleet.ErrUnreachable,
			m.place.Master, m.port())
		if refused != nil {
			err = fmt.Errorf("%w A connection was refused: %w", err, refused)
		}
		return nil, err
	}
	for {
		select {
		case c := <-at.free:
			if err := say(c, word{Ask: c.proof}); err != nil {
				_ = c.Close()
				continue // it has gone while it waited, and comes again or not
			}
			return c.Conn, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (m *Meeting) port() int { return m.at.Addr().(*net.TCPAddr).Port }

// Close dismisses the other ranks. Questions must have ended.
func (m *Meeting) Close() error {
	err := m.at.Close()
	m.limiter.Close()
	m.work.Wait() // nobody comes any more
	for _, r := range m.ranks {
		for len(r.free) > 0 {
			c := <-r.free
			_ = say(c, word{Over: true}) // who does not hear it sees the connection end
			_ = c.Close()
		}
	}
	return err
}
