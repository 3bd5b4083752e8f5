package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A link is a cable, or one half of it, with its rate in MB/s; 0 is as fast as
// memory, and without latency.
type link struct {
	a, b string // nodes
	rate float64
	mtu  int // of the interfaces; 0 for the usual one
}

const latency = 20 // µs, of a link with a rate

// speed is what the ports of the link say of themselves, in Mb/s: 100 Gb/s or a
// part of it, as the rates are to each other.
func (l link) speed() float64 {
	if l.rate == 0 {
		return 100e3
	}
	return 100e3 * min(l.rate/topRate, 1)
}

// topology describes the fabric to fakenet. The i-th link of a node is at its
// device rdma<i>; two links that follow each other between the same nodes are
// the halves of a cage.
func topology(links []link) string {
	var ports, cables strings.Builder
	count := map[string]int{}
	for i, l := range links {
		var end [2]string
		for k, node := range [2]string{l.a, l.b} {
			n := count[node]
			count[node]++
			end[k] = fmt.Sprintf("%s:rdma%d", node, n)
			fmt.Fprintf(&ports, "port %s rdma%d netdev p%d addr 192.168.%d.%d/24 cage q%d speed %.0fM\n", node, n, n, i+1, k+1, n/2, l.speed())
		}
		fmt.Fprintf(&cables, "link %s %s", end[0], end[1])
		if l.rate > 0 {
			fmt.Fprintf(&cables, " rate %gMB latency %dus", l.rate, latency)
		}
		if l.mtu > 0 {
			fmt.Fprintf(&cables, " mtu %d", l.mtu)
		}
		cables.WriteByte('\n')
	}
	return ports.String() + cables.String()
}

// A fabric is a set of nodes that is up.
type fabric struct {
	tools string
	dir   string
	cmd   *exec.Cmd
}

// raise brings a fabric up.
func raise(tools string, links []link) (_ *fabric, err error) {
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "bench")
	if err != nil {
		return nil, err
	}
	f := &fabric{tools: tools, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	file := filepath.Join(dir, "topology.txt")
	if err := os.WriteFile(file, []byte(topology(links)), 0o600); err != nil {
		return nil, err
	}
	f.cmd = exec.Command(filepath.Join(tools, "fakenet"), "up", "-d", dir, file)
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	f.cmd.Stderr = os.Stderr
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		f.cmd = nil
		return nil, fmt.Errorf("%w: build it with make fakeverbs", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != "up" {
		return nil, fmt.Errorf("fakenet up did not come up (said %q); it needs root, or the right to make a user namespace", line)
	}
	return f, nil
}

// command is a program on a node.
func (f *fabric) command(ctx context.Context, node, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(f.tools, "fakenet"),
		append([]string{"exec", "-d", f.dir, node, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	return cmd
}

func (f *fabric) close() error {
	if f.cmd != nil {
		_ = f.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = f.cmd.Wait()                          // by that signal
		f.cmd = nil
	}
	return os.RemoveAll(f.dir)
}
