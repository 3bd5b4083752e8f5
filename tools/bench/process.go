package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A work is a program of tests/bench, which runs on nodes a and b.
type work struct {
	program   string
	args, env []string
	relays    []command // which run as long as it does
}

// loop is a C loop over the lane of device rdma<device>.
func (b *bench) loop(program string, device int, args ...string) work {
	return work{program: b.program(program), args: append([]string{"--device", fmt.Sprintf("rdma%d", device), "--work"}, args...)}
}

// over is the same over a plugin, with something in its environment.
func (b *bench) over(plugin string, env []string, args ...string) work {
	b.runs++
	return work{program: b.program("plugin"), args: append([]string{"--plugin", plugin, "--work"}, args...), env: env}
}

// commands are the two ranks. What w says for itself comes last, and counts.
func (w work) commands(meet string, seconds float64, args ...string) []command {
	var cmds []command
	for rank, node := range []string{"a", "b"} {
		own := append([]string{"--rank", strconv.Itoa(rank), "--meet", meet, "--seconds", fmt.Sprint(seconds)}, args...)
		cmds = append(cmds, command{node: node, program: w.program, args: append(own, w.args...), env: w.env})
	}
	return append(cmds, w.relays...)
}

// run does w once.
func (b *bench) run(w work) (s sample, err error) {
	out, err := b.together(w.commands(meetAt, b.o.seconds))
	if err != nil {
		return s, err
	}
	return s, parseSample(out, &s)
}

func parseSample(line []byte, s *sample) error {
	if err := json.Unmarshal(line, s); err != nil {
		return fmt.Errorf("the first rank printed %q: %w", line, err)
	}
	return nil
}

type command struct {
	node, program string
	args          []string
	env           []string // beside this process's own
	beside        bool     // it runs until the others have ended
}

// A group is commands that run at once, each on the processor of its rank.
type group struct {
	b        *bench
	commands []command
	cmds     []*exec.Cmd // that were started, and have an end
	beside   []*exec.Cmd // that have none
	gone     sync.WaitGroup
	said     []bytes.Buffer
	ended    chan error
	cancel   context.CancelFunc
	err      error // of the start
}

// start starts commands. The first has in and out.
func (b *bench) start(commands []command, in io.Reader, out io.Writer) *group {
	ctx, cancel := context.WithTimeout(b.ctx, hangGuard)
	g := &group{b: b, commands: commands, said: make([]bytes.Buffer, len(commands)), ended: make(chan error, len(commands)), cancel: cancel}
	for i, c := range commands {
		cmd := b.up.Command(ctx, c.node, c.program, c.args...)
		cmd.Env = append(append(os.Environ(), "NCCL_MESH_RNR_RETRY=0"), c.env...)
		cmd.Stderr = &g.said[i]
		if i == 0 {
			cmd.Stdin, cmd.Stdout = in, out
		}
		if g.err = b.startRank(i, c, cmd); g.err != nil {
			cancel()
			break
		}
		if c.beside {
			g.beside = append(g.beside, cmd)
			g.gone.Go(func() { _ = cmd.Wait() }) // it is killed
			continue
		}
		g.cmds = append(g.cmds, cmd)
		go func() {
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("%s on node %s: %w", filepath.Base(c.program), c.node, err)
				cancel() // the others would wait for it
			}
			g.ended <- err
		}()
	}
	return g
}

// wait waits for all of them. A receiver that is not ready fails the group, and is
// counted.
func (g *group) wait() error {
	defer g.cancel()
	errs := []error{g.err}
	for range g.cmds {
		errs = append(errs, <-g.ended)
	}
	g.cancel()
	g.gone.Wait()
	for _, cmd := range slices.Concat(g.cmds, g.beside) {
		g.b.watch.own += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	for i := range g.said {
		text := strings.TrimSpace(g.said[i].String())
		if strings.Contains(text, "RNR") {
			g.b.rnr++
		}
		if text != "" {
			err = fmt.Errorf("%w\n%s: %s", err, g.commands[i].node, text)
		}
	}
	return err
}

// together runs commands to their end and returns what the first printed.
func (b *bench) together(commands []command) ([]byte, error) {
	var out bytes.Buffer
	err := b.start(commands, nil, &out).wait()
	return out.Bytes(), err
}

// A slicer is a work that measures for a moment whenever it is asked to, and sleeps
// until it is asked again.
type slicer struct {
	*group
	ask     *os.File
	answers *os.File
	lines   *bufio.Reader
}

// slicer starts w, and measures once to warm it.
func (b *bench) slicer(w work, meet string) (_ *slicer, err error) {
	in, ask, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), ask.Close())
	}
	s := &slicer{b.start(w.commands(meet, slice.Seconds(), "--slices"), in, out), ask, answers, bufio.NewReader(answers)}
	err = errors.Join(in.Close(), out.Close()) // they are the program's
	if err == nil {
		_, err = s.next()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// next measures a slice.
func (s *slicer) next() (got sample, err error) {
	before := processorTime(s.beside)
	defer func() { got.Relays = float64(processorTime(s.beside) - before) }()
	if _, err := s.ask.Write([]byte{'\n'}); err != nil {
		return got, err
	}
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return got, fmt.Errorf("the first rank ended: %w", err)
	}
	return got, parseSample(line, &got)
}

func (s *slicer) close() error {
	return errors.Join(s.ask.Close(), s.wait(), s.answers.Close())
}
