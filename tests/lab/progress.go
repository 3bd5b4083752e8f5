package lab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Progress tells a person what takes so long. A nil Progress is silent.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer
	tty   bool
	start time.Time
}

// NewProgress writes to f, with moving bars when that is a terminal.
func NewProgress(f *os.File) *Progress {
	st, err := f.Stat()
	return &Progress{w: f, tty: err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb", start: time.Now()}
}

// Say writes a line.
func (p *Progress) Say(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	clear := ""
	if p.tty {
		clear = "\r\x1b[K"
	}
	fmt.Fprintf(p.w, "%slab: %5.1f s  %s\n", clear, time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// A Meter shows how much of something is done.
type Meter struct {
	p     *Progress
	what  string
	total int64
	start time.Time
}

// Meter starts a meter that counts to total.
func (p *Progress) Meter(what string, total int64) *Meter {
	return &Meter{p: p, what: what, total: max(total, 1), start: time.Now()}
}

// Set moves the meter, on a terminal.
func (m *Meter) Set(n int64) {
	if m.p == nil || !m.p.tty {
		return
	}
	const width = 30
	full := int(min(n, m.total) * width / m.total)
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	fmt.Fprintf(m.p.w, "\r\x1b[Klab: %5.1f s  %s [%s%s] %d of %d MB", time.Since(m.p.start).Seconds(), m.what,
		strings.Repeat("#", full), strings.Repeat(".", width-full), n>>20, m.total>>20)
}

// Watch sets the meter to what get returns, again and again until stop is called.
func (m *Meter) Watch(get func() int64, every time.Duration) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(every):
				m.Set(get())
			}
		}
	}()
	return func() { close(quit); <-done }
}

// Done ends the meter with a line.
func (m *Meter) Done() {
	m.p.Say("%s: %.1f MB in %.1f s", m.what, float64(m.total)/(1<<20), time.Since(m.start).Seconds())
}
