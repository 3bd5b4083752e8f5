package bus

import "sync"

// A Gate keeps from a process what it would notice, while the process is stopped. A nil Gate is open.
type Gate struct {
	source *Source
	mu     sync.Mutex
	shut   bool
	times  int // how often it was shut
	held   []func()
	calls  int    // calls of Wait until the gate shuts by itself; 0: it does not
	then   func() // what is called when it does
}

// NewGate returns a gate that is open. What it has held back passes by events of the source.
func NewGate(s *Source) *Gate { return &Gate{source: s} }

// Shut shuts the gate.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
}

// close is Shut for one who holds g.mu.
func (g *Gate) close() {
	if !g.shut {
		g.shut = true
		g.times++
	}
}

// Times returns how often the gate was shut.
func (g *Gate) Times() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.times
}

// ShutAt shuts the gate at the nth call of Wait from now, which is held back, and calls then. A later call of ShutAt replaces an earlier one.
func (g *Gate) ShutAt(n int, then func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls, g.then = n, then
}

// Open opens the gate. What it has held back passes in order, each by an event of its own.
func (g *Gate) Open() {
	g.mu.Lock()
	held := g.held
	g.shut, g.held = false, nil
	g.mu.Unlock()
	for _, f := range held {
		g.source.After(0, "goes on", func() { g.Pass(f) })
	}
}

// Pass calls f, at once where the gate is open, else once it opens.
func (g *Gate) Pass(f func()) {
	if g == nil || !g.hold(f) {
		f()
	}
}

// Wait waits until the gate is open. A goroutine of the process calls it whenever something outside the process has woken it.
func (g *Gate) Wait() {
	if g == nil {
		return
	}
	if g.count() {
		return
	}
	open := make(chan struct{})
	if g.hold(func() { close(open) }) {
		<-open
	}
}

// count counts a call of Wait, and shuts the gate where it is the one of ShutAt. It reports whether the gate is open.
func (g *Gate) count() bool {
	g.mu.Lock()
	var then func()
	if g.calls > 0 {
		if g.calls--; g.calls == 0 {
			g.close()
			then = g.then
		}
	}
	open := !g.shut
	g.mu.Unlock()
	if then != nil {
		then()
	}
	return open
}

// hold keeps f until the gate opens, and reports whether it is shut.
func (g *Gate) hold(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		g.held = append(g.held, f)
	}
	return g.shut
}
