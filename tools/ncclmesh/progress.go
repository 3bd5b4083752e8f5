package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress tells a person at a terminal what goes on, in a line of its own, and for how long: from the third second on, as what
// is done before needs no word.
type progress struct {
	to    io.Writer // nil: nobody looks
	width func() int
	done  chan struct{}
	ended sync.WaitGroup
	once  sync.Once

	mu   sync.Mutex
	text string
}

const (
	progressAfter = 2 * time.Second
	progressEvery = time.Second
)

// newProgress begins to show a text on standard error, if that is a terminal.
func newProgress(sys *system, text string) *progress {
	p := &progress{text: text, done: make(chan struct{})}
	if f, ok := sys.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.begin(f, func() int {
			columns, _, err := term.GetSize(int(f.Fd()))
			if err != nil || columns == 0 {
				return 80
			}
			return columns
		})
	}
	return p
}

// begin shows the progress to a writer.
func (p *progress) begin(to io.Writer, width func() int) {
	p.to, p.width = to, width
	p.ended.Go(func() {
		begun := time.Now()
		next := time.NewTimer(progressAfter)
		defer next.Stop()
		for {
			select {
			case <-p.done:
				return
			case <-next.C:
				p.show(time.Since(begun))
				next.Reset(progressEvery)
			}
		}
	})
}

// timeWidth is what the time takes at the end of the line, with a column that stays free.
const timeWidth = 10

const clearLine = "\r\x1b[K"

func (p *progress) show(since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := []rune(p.text)
	if most := max(p.width()-timeWidth, 0); len(line) > most {
		line = line[:most] // a line that breaks could not be cleared
	}
	fmt.Fprintf(p.to, "%s%s … %.0f s", clearLine, string(line), since.Seconds())
}

// say changes what is shown.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

// end clears the line. The progress says nothing more. It may be called again.
func (p *progress) end() {
	p.once.Do(func() {
		close(p.done)
		p.ended.Wait()
		if p.to != nil {
			fmt.Fprint(p.to, clearLine)
		}
	})
}
