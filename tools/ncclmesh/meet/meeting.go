package meet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
)

const (
	greeting = 10 * time.Second // that a process may take to say who it is
	waiting  = 64               // connections of one rank, and as many that have not said whose they are
)

// Meeting is rank 0's side. Its methods may be called from any goroutine.
type Meeting struct {
	place Place
	host  string // this node's
	key   []byte
	at    net.Listener
	begun chan struct{} // room for those that have not said who they are
	work  sync.WaitGroup

	ctx    context.Context // of the meeting
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	ranks   map[int]*rank
	changed chan struct{} // closed when a rank has come, and replaced
	refused error         // why somebody was not believed, the last
}

// rank is a process that has come.
type rank struct {
	arrival
	free chan net.Conn // that wait for a question
}

// Open begins to wait for the other ranks. The caller closes the meeting.
func Open(p Place, port int, key string) (*Meeting, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	at, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot wait for the others: %w; another port is chosen with --rank-port, on all ranks", err)
	}
	m := &Meeting{place: p, host: host, key: []byte(key), at: at, begun: make(chan struct{}, waiting), ranks: map[int]*rank{}, changed: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.accept)
	return m, nil
}

func (m *Meeting) accept() {
	for {
		c, err := m.at.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // of descriptors, mostly
			continue
		}
		select {
		case m.begun <- struct{}{}:
		default: // whoever is a rank comes again
			_ = c.Close()
			continue
		}
		m.work.Go(func() {
			defer func() { <-m.begun }()
			if err := m.receive(c); err != nil {
				_ = c.Close()
				m.mu.Lock()
				m.refused = fmt.Errorf("%v: %w", c.RemoteAddr(), err)
				m.mu.Unlock()
			}
		})
	}
}

// receive finds out who has come.
func (m *Meeting) receive(c net.Conn) error {
	stop := context.AfterFunc(m.ctx, func() { _ = c.Close() })
	defer stop()
	w := welcome{Schema, nonce()}
	var a arrival
	if err := say(c, w); err != nil {
		return err
	}
	if err := hear(c, greeting, &a); err != nil {
		return fmt.Errorf("has not said which rank it is: %w", err)
	}
	switch {
	case !proved(m.key, a.Proof, "rank", w, a):
		return errors.New("has another NCCL_MESH_KEY, or none: all ranks must have the same")
	case a.Rank < 1 || a.Rank >= m.place.Size:
		return fmt.Errorf("says that it is rank %d of %d", a.Rank, m.place.Size)
	case fleet.Check([]string{a.Host}) != nil:
		return fmt.Errorf("says that its node is %q", a.Host)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return net.ErrClosed
	}
	r := m.ranks[a.Rank]
	if r == nil {
		r = &rank{free: make(chan net.Conn, waiting)}
		m.ranks[a.Rank] = r
	}
	a.Nonce, a.Proof = nil, prove(m.key, "asker", w, a)
	r.arrival = a
	select {
	case r.free <- &asked{Conn: c, proof: a.Proof}:
	default:
		return fmt.Errorf("rank %d has %d connections that nobody needs", a.Rank, waiting)
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// asked is a connection with what makes a question of it.
type asked struct {
	net.Conn
	proof []byte
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
		err := fmt.Errorf("%w: it has not come to %s, MASTER_ADDR; is it reached there from all nodes, and TCP port %s let through?", fleet.ErrUnreachable,
			m.place.Master, port(m.at.Addr()))
		if refused != nil {
			err = fmt.Errorf("%w Somebody was sent away: %w", err, refused)
		}
		return nil, err
	}
	for {
		select {
		case c := <-at.free:
			if err := say(c, word{Ask: c.(*asked).proof}); err != nil {
				_ = c.Close()
				continue // it has gone while it waited, and comes again or not
			}
			return c, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.ctx.Done():
			return nil, net.ErrClosed
		}
	}
}

func port(a net.Addr) string {
	_, p, _ := net.SplitHostPort(a.String())
	return cmp.Or(p, "?")
}

// Close dismisses the other ranks. Questions must have ended.
func (m *Meeting) Close() error {
	m.mu.Lock()
	m.closed = true
	ranks := make([]*rank, 0, len(m.ranks))
	for _, r := range m.ranks {
		ranks = append(ranks, r)
	}
	m.mu.Unlock()
	err := m.at.Close()
	m.cancel()
	m.work.Wait()
	slices.SortFunc(ranks, func(a, b *rank) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, r := range ranks {
		for len(r.free) > 0 {
			c := <-r.free
			_ = say(c, word{Over: true}) // who does not hear it sees the connection end
			_ = c.Close()
		}
	}
	return err
}
