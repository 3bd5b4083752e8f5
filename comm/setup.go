package comm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/comm/fifo"
	"ncclmesh/handshake"
	"ncclmesh/printable"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
)

// Setup sets up all connections that Connect has made since the last Setup, on all ranks. All ranks have to call it, those without a new
// connection too. It fails on all ranks if it fails on one; the error says where and why. Connections that did not fit
// together stay: add the missing ones and call Setup again.
//
// # Exchange
//
// The ranks gather, in this order: how many connections and new peers each has; the connections; handles of listeners for the new
// peers, one listener for each, so that no connection is taken for another; and whether each rank has succeeded.
func (c *Comm) Setup() error {
	if err := c.lockCollective(); err != nil {
		return err
	}
	defer c.collective.Unlock()
	c.mu.Lock()
	fresh := slices.Clone(c.unconnected)
	c.mu.Unlock()
	deadline := time.Now().Add(c.process.bootstrapTimeout())
	own, err := c.prepare(fresh)
	if err = c.agree("set up its connections", err); err != nil {
		return errors.Join(err, c.undo(fresh, own))
	}
	all, err := c.exchange(describe(fresh), entrySize)
	if err == nil {
		err = c.match(all)
	}
	if err != nil {
		return errors.Join(err, c.undo(fresh, own))
	}
	ranks := newPeers(c.peers, fresh)
	err = c.connect(ranks, deadline)
	if err == nil {
		err = c.complete(fresh, all, deadline)
	}
	if err = c.agree("set up its connections", err); err != nil {
		return errors.Join(err, c.disconnect(ranks), c.undo(fresh, own))
	}
	c.publish(fresh, own)
	return nil
}

// prepare registers the local buffers of new connections, and makes their epochs.
//
// Preconditions: c.collective is locked.
func (c *Comm) prepare(fresh []*Connection) (own *epochs, err error) {
	if len(fresh) == 0 {
		return nil, nil
	}
	if own, err = c.newEpochs(len(fresh)); err != nil {
		return nil, err
	}
	for i, x := range fresh {
		x.epochs, x.word = own, uint64(8*i)
		if x.epoch, err = own.window.Word(x.word); err != nil {
			return own, err
		}
		if x.local, err = c.register(x.region); err != nil {
			return own, fmt.Errorf("%v: %w", x, err)
		}
		if x.fifo, err = fifo.New(); err != nil {
			return own, err
		}
	}
	return own, nil
}

// undo takes back what Setup has done for connections that it could not set up.
//
// Preconditions: c.collective is locked.
func (c *Comm) undo(fresh []*Connection, own *epochs) error {
	var errs []error
	for _, x := range fresh {
		if x.local != nil {
			errs = append(errs, c.deregister(x.local))
		}
		if x.fifo != nil {
			errs = append(errs, x.fifo.Free())
		}
		x.local, x.fifo, x.epochs, x.peer = nil, nil, nil, nil
	}
	if own == nil {
		return errors.Join(errs...)
	}
	if err := c.deregister(own.window); err != nil { // an adapter may still use the memory
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, own.memory.Free())...)
}

// disconnect ends the connections with peers.
//
// Preconditions: c.collective is locked.
func (c *Comm) disconnect(ranks []int) error {
	var errs []error
	for _, rank := range ranks {
		if p := c.peers[rank]; p != nil {
			errs = append(errs, p.Close())
			c.peers[rank] = nil
		}
	}
	return errors.Join(errs...)
}

// publish makes new connections usable.
//
// Preconditions: c.collective is locked.
func (c *Comm) publish(fresh []*Connection, own *epochs) {
	if own != nil {
		c.epochs = append(c.epochs, own)
	}
	all := slices.Concat(*c.connections.Load(), fresh)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connections.Store(&all)
	c.unconnected = slices.DeleteFunc(c.unconnected, func(x *Connection) bool { return slices.Contains(fresh, x) })
}

// An entry is what the other ranks learn of a connection.
type entry struct {
	remote, tag            int64
	window, epochs, offset uint64
	size                   uint64
}

const entrySize = 6 * 8

// describe returns the entries of connections.
func describe(fresh []*Connection) (b []byte) {
	for _, x := range fresh {
		for _, v := range []uint64{
			uint64(x.remote), uint64(x.tag), uint64(x.local.ID()), uint64(x.epochs.window.ID()), x.word, x.region.Length,
		} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	return b
}

// entriesOf reads the entries of one rank.
func entriesOf(b []byte) (list []entry) {
	word := func() (v uint64) {
		v, b = binary.BigEndian.Uint64(b), b[8:]
		return v
	}
	for len(b) >= entrySize {
		list = append(list, entry{int64(word()), int64(word()), word(), word(), word(), word()})
	}
	return list
}

// maxItems is how many new connections a rank may have in one Setup.
const maxItems = 1 << 16

// exchange gathers a list of each rank, of any number of items of a size.
func (c *Comm) exchange(own []byte, size int) ([][]byte, error) {
	n, rank := c.Size(), c.Rank()
	counts := make([]byte, 8*n)
	binary.BigEndian.PutUint64(counts[8*rank:], uint64(len(own)/size))
	if err := c.member.AllGather(counts, c.process.bootstrapTimeout()); err != nil {
		return nil, err
	}
	most := uint64(0)
	for i := range n {
		most = max(most, binary.BigEndian.Uint64(counts[8*i:]))
	}
	lists := make([][]byte, n)
	if most == 0 {
		return lists, nil
	}
	if most > maxItems {
		return nil, fmt.Errorf("%w: a rank has %d connections that are to be set up, at most %d are possible", fault.ErrUsage, most, maxItems)
	}
	part := int(most) * size
	data := make([]byte, n*part)
	copy(data[rank*part:], own)
	if err := c.member.AllGather(data, c.process.bootstrapTimeout()); err != nil {
		return nil, err
	}
	for i := range n {
		lists[i] = data[i*part:][:int(binary.BigEndian.Uint64(counts[8*i:]))*size]
	}
	return lists, nil
}

// match returns an error if a rank has a connection of which the other side has none. All ranks get the same error.
func (c *Comm) match(all [][]byte) error {
	type end struct{ from, to, tag int64 }
	ends := map[end]bool{}
	for rank, b := range all {
		for _, e := range entriesOf(b) {
			ends[end{int64(rank), e.remote, e.tag}] = true
		}
	}
	var missing []string
	for rank, b := range all {
		for _, e := range entriesOf(b) {
			if !ends[end{e.remote, int64(rank), e.tag}] {
				missing = append(missing, fmt.Sprintf("rank %d has connected to rank %d with tag %d, but rank %d not to rank %d", rank, e.remote, e.tag, e.remote, rank))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: both ranks have to call Connect, with the same tag", ErrArgument, strings.Join(missing, "; "))
}

// newPeers returns the ranks that have connections for the first time, in order.
func newPeers(peers []*onesided.Peer, fresh []*Connection) (ranks []int) {
	for _, x := range fresh {
		if peers[x.remote] == nil && !slices.Contains(ranks, x.remote) {
			ranks = append(ranks, x.remote)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// A joining is a peer that is being connected: a connection of package transport in each direction.
type joining struct {
	rank     int
	listener *transport.Listener
	dialing  *transport.Dialing
	out      *conn.Sender
	in       *conn.Receiver
}

const handleSize = 8 + handshake.HandleSize // a rank, and a handle for it

// connect connects to new peers, which connect to this rank at the same time.
//
// Preconditions: c.collective is locked. All ranks call it.
func (c *Comm) connect(ranks []int, deadline time.Time) (err error) {
	var own []byte
	var list []*joining
	defer func() {
		if err != nil {
			for _, j := range list {
				err = errors.Join(err, j.close())
			}
		}
	}()
	var failed error
	for _, rank := range ranks {
		l, err := c.mesh.Listen()
		if err != nil {
			failed = err
			break
		}
		h := l.Handle()
		list = append(list, &joining{rank: rank, listener: l})
		own = append(binary.BigEndian.AppendUint64(own, uint64(rank)), h[:]...)
	}
	all, err := c.exchange(own, handleSize)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	for _, j := range list {
		h, err := handleFor(all[j.rank], c.Rank())
		if err != nil {
			return fmt.Errorf("rank %d: %w", j.rank, err)
		}
		j.dialing = c.mesh.Dial(h)
	}
	for pace := c.newPace(longestPause); len(list) > 0; pace.Wait() {
		for _, j := range list {
			if err := c.poll(j); err != nil {
				return fmt.Errorf("no connection with rank %d: %w", j.rank, err)
			}
		}
		list = slices.DeleteFunc(list, func(j *joining) bool { return c.peers[j.rank] != nil })
		if len(list) > 0 && time.Now().After(deadline) {
			return fmt.Errorf("%w: no connection with rank %d within %v", errPeerSilent, list[0].rank, c.process.bootstrapTimeout())
		}
		if err := c.usable(); err != nil {
			return err
		}
	}
	return nil
}

// handleFor returns the handle for a rank in the list of another one.
func handleFor(list []byte, rank int) (h handshake.Handle, err error) {
	for ; len(list) >= handleSize; list = list[handleSize:] {
		if binary.BigEndian.Uint64(list) == uint64(rank) {
			raw := [handshake.HandleSize]byte(list[8:])
			return handshake.DecodeHandle(&raw)
		}
	}
	return h, errPeerSilent
}

// poll goes on with the set-up of a peer.
func (c *Comm) poll(j *joining) (err error) {
	if j.out == nil {
		if j.out, err = j.dialing.Poll(); err != nil {
			return err
		}
	}
	if j.in == nil {
		if j.in, err = j.listener.Accept(); err != nil {
			return err
		}
	}
	if j.out == nil || j.in == nil {
		return nil
	}
	if err := j.listener.Close(); err != nil {
		return err
	}
	peer, err := c.space.Connect(j.out, j.in)
	if err == nil {
		c.peers[j.rank] = peer
	}
	return err
}

// close ends an attempt.
func (j *joining) close() error {
	errs := []error{j.listener.Close()}
	if j.dialing != nil {
		errs = append(errs, j.dialing.Close())
	}
	if j.out != nil {
		errs = append(errs, j.out.Close())
	}
	if j.in != nil {
		errs = append(errs, j.in.Close())
	}
	return errors.Join(errs...)
}

// complete fills in what new connections need of the other side, and waits until this side knows its windows.
//
// Preconditions: c.collective is locked.
func (c *Comm) complete(fresh []*Connection, all [][]byte, deadline time.Time) error {
	for _, x := range fresh {
		list := entriesOf(all[x.remote])
		i := slices.IndexFunc(list, func(e entry) bool { return e.remote == int64(c.Rank()) && e.tag == int64(x.tag) }) // match has found it
		e := list[i]
		x.peer, x.remoteEpochs, x.remoteWord = c.peers[x.remote], uint32(e.epochs), e.offset
		remote, err := c.awaitWindow(x.remote, uint32(e.window), deadline)
		if err == nil {
			_, err = c.awaitWindow(x.remote, x.remoteEpochs, deadline)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
		if x.buffer = remote; e.size < remote.Size {
			x.buffer.Size = e.size
		}
	}
	return nil
}

// awaitWindow waits until this side knows a window of a peer.
func (c *Comm) awaitWindow(rank int, id uint32, deadline time.Time) (w onesided.Remote, err error) {
	peer := c.peers[rank]
	if peer == nil {
		return w, errNotSetUp(rank)
	}
	what := func() string { return "the other side's memory is not known" }
	err = c.await(max(0, time.Until(deadline)), what, func() (ok bool, err error) {
		if w, ok = peer.Window(id); !ok {
			err = peer.Err()
		}
		return ok, err
	})
	if errors.Is(err, ErrTimeout) {
		err = fmt.Errorf("%w: %v", errPeerSilent, err)
	}
	return w, err
}

// agree returns an error on all ranks if a rank has one. what names the task that the rank could not do.
func (c *Comm) agree(what string, own error) error {
	const size = 1 + 2 + 400 // result, length of the text, text
	n, rank := c.Size(), c.Rank()
	data := make([]byte, n*size)
	if own != nil {
		text := printable.Line(own.Error(), size-3)
		b := data[rank*size:]
		b[0] = byte(ResultOf(own))
		binary.BigEndian.PutUint16(b[1:], uint16(len(text)))
		copy(b[3:], text)
	}
	if err := c.member.AllGather(data, c.process.bootstrapTimeout()); err != nil {
		return errors.Join(own, err)
	}
	var other error
	for i := range n {
		b := data[i*size:][:size]
		if i == rank || b[0] == 0 || other != nil { // one reason of another rank is enough
			continue
		}
		length := min(int(binary.BigEndian.Uint16(b[1:])), size-3)
		other = fmt.Errorf("%w: rank %d could not %s: %s", errPeerRefused, i, what, printable.Line(string(b[3:3+length]), size))
	}
	if own == nil || other == nil {
		return cmp.Or(own, other)
	}
	return fmt.Errorf("%w; %v", own, other)
}
