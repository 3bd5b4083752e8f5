package ibv

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// A kind is a class of objects that have to be closed.
type kind int

const (
	kindContext kind = iota
	kindPD
	kindMR
	kindCompChannel
	kindCQ
	kindQP
	kindMemory
	numKinds
)

var kindNames = [numKinds]string{
	"contexts", "protection domains", "memory regions", "completion channels", "completion queues", "queue pairs", "memories",
}

var live [numKinds]atomic.Int64

// Live counts the objects of the process that are open, by kind; kinds without any are left out. It is for leak checks.
func Live() map[string]int {
	m := map[string]int{}
	for k := range live {
		if n := int(live[k].Load()); n != 0 {
			m[kindNames[k]] = n
		}
	}
	return m
}

// A life is that of one object between its parents' and its children's: a parent cannot close before its children.
// Locks are taken from child to parent.
type life struct {
	kind    kind
	parents []*life

	ended atomic.Bool // written under mu

	mu       sync.Mutex
	ending   chan struct{} // closed when the attempt to destroy the object that is under way is over; nil without one
	children [numKinds]int
}

// lockSettled locks mu when no attempt to destroy the object is under way. It waits for one without mu, because destroying
// may wait for others: for an event that is being handled, for a device.
func (l *life) lockSettled() {
	l.mu.Lock()
	for l.ending != nil {
		over := l.ending
		l.mu.Unlock()
		<-over
		l.mu.Lock()
	}
}

// begin enters the object into its parents' books, before the C object exists.
func (l *life) begin(k kind, parents ...*life) error {
	l.kind, l.parents = k, parents
	for i, p := range parents {
		p.lockSettled()
		if p.ended.Load() {
			p.mu.Unlock()
			l.leave(parents[:i])
			return net.ErrClosed
		}
		p.children[k]++
		p.mu.Unlock()
	}
	live[k].Add(1)
	return nil
}

func (l *life) leave(parents []*life) {
	for _, p := range parents {
		p.mu.Lock()
		p.children[l.kind]--
		p.mu.Unlock()
	}
}

// abandon undoes begin for an object that did not come about.
func (l *life) abandon() {
	l.ended.Store(true)
	l.leave(l.parents)
	live[l.kind].Add(-1)
}

// end destroys the object once. If destroy fails, the object stays open. Callers that come meanwhile wait.
func (l *life) end(what string, destroy func() error) (err error) {
	l.lockSettled()
	if l.ended.Load() {
		l.mu.Unlock()
		return nil
	}
	if left := l.leftLocked(); left != "" {
		l.mu.Unlock()
		return fmt.Errorf("ibv: cannot close %s before what was made from it: %s still open", what, left)
	}
	over := make(chan struct{})
	l.ending = over
	l.mu.Unlock()
	destroyed := false
	defer func() {
		l.mu.Lock()
		l.ending = nil
		l.ended.Store(destroyed)
		l.mu.Unlock()
		if destroyed {
			l.leave(l.parents)
			live[l.kind].Add(-1)
		}
		close(over) // also when destroy panics
	}()
	err = destroy()
	destroyed = err == nil
	return err
}

// left lists the children that are open.
func (l *life) left() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leftLocked()
}

func (l *life) leftLocked() string {
	var left []string
	for k, n := range l.children {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, kindNames[k]))
		}
	}
	return strings.Join(left, ", ")
}

// check returns net.ErrClosed after the end.
func (l *life) check() error {
	if l.ended.Load() {
		return net.ErrClosed
	}
	return nil
}
