package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/procgroup"
)

// How long a program may take to end when its input has: an agent may have processes of its own to end, and one that was
// pushed has to be removed.
const (
	patience       = 5 * time.Second
	patiencePushed = 10 * time.Second
)

// program is what leads to a host, while it runs.
type program struct {
	cmd    *exec.Cmd      // or nil: a connection
	in     io.WriteCloser // of a connection once it has said something
	out    *io.PipeReader // it is at its end when the program is
	said   tail           // on its standard error
	pushes bool           // a program to the host, first
	ended  chan struct{}  // closed when it has, and cmd.ProcessState tells how
	mu     sync.Mutex     // over what goes to in
}

// start starts what leads to a host's agent, and logs what it writes on standard error. When the context ends, its input does, and it
// itself when it takes too long.
func (f *Fleet) start(ctx context.Context, host string, log io.Writer) (*program, error) {
	if f.Dial != nil && host != Here {
		return f.dial(ctx, host), nil
	}
	words := f.command(host)
	p := &program{ended: make(chan struct{}), pushes: f.Push != "" && host != Here}
	p.said.log = log
	var load io.ReadCloser
	if p.pushes {
		var err error
		if load, err = openLoad(f.Push); err != nil {
			return nil, err
		}
	}
	p.cmd = exec.CommandContext(ctx, words[0], words[1:]...)
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = f.Env, &p.said, patience
	if p.pushes {
		p.cmd.WaitDelay = patiencePushed
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, outWriter := io.Pipe()
	p.in, p.out, p.cmd.Stdout = in, out, outWriter
	p.cmd.Cancel = in.Close              // what was pushed is removed there when the agent ends
	group, err := procgroup.Start(p.cmd) // its helpers end with it, and a terminal's interrupt is ours
	if err != nil {
		if load != nil {
			err = errors.Join(err, load.Close())
		}
		return nil, f.notStarted(host, err)
	}
	go func() {
		_ = group.Wait(nil) // ProcessState has it
		close(p.ended)
		_ = outWriter.Close()
	}()
	if load != nil {
		p.mu.Lock() // nothing else is said before
		go func() {
			defer p.mu.Unlock()
			_, err := io.Copy(p.in, load) // an error is the program's end, or the file's
			if errors.Join(err, load.Close()) != nil {
				_ = p.in.Close()
			}
		}()
	}
	return p, nil
}

// dial is start of what needs no program.
func (f *Fleet) dial(ctx context.Context, host string) *program {
	p := &program{ended: make(chan struct{})}
	out, to := io.Pipe()
	p.out = out
	go func() {
		defer close(p.ended)
		c, err := f.Dial(ctx, host)
		if err != nil {
			_ = to.CloseWithError(err)
			return
		}
		p.mu.Lock()
		p.in = c
		p.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		_, err = io.Copy(to, c)
		_ = c.Close()
		if errors.Is(err, io.ErrClosedPipe) || ctx.Err() != nil {
			err = nil // it was given up here
		}
		_ = to.CloseWithError(err)
	}()
	return p
}

// say writes to the program.
func (p *program) say(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.in.Write(line)
	return err
}

// end waits until nothing is left of the program. Its context is over.
func (p *program) end() {
	if p.cmd != nil {
		_ = p.in.Close()
	}
	_ = p.out.Close()
	<-p.ended
}

// mute says why a program has ended without a hello, from what came instead. It waits for the end.
func (p *program) mute(f *Fleet, host string, noise []byte) error {
	<-p.ended
	if p.cmd == nil {
		return ErrEnded
	}
	return f.explain(host, p.cmd.ProcessState.ExitCode(), append(noise, p.said.bytes()...))
}

// lastWords is what the program has said of a trouble, to go on a sentence.
func (p *program) lastWords() string {
	if words := clip(p.said.bytes()); words != "" {
		return ": " + words
	}
	return ""
}

// tail keeps the last words of a program, and hands all of them on.
type tail struct {
	log  io.Writer // or nil
	mu   sync.Mutex
	kept []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.log != nil {
		_, _ = t.log.Write(p) // a log that is gone ends nothing
	}
	t.kept = append(t.kept, p...)
	if n := len(t.kept) - tailSize; n > 0 {
		t.kept = append(t.kept[:0], t.kept[n:]...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.kept)
}
