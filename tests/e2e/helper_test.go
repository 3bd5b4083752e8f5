package e2e

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
)

// helper is this program on a node of a fabric, under way.
type helper struct {
	f    *mesh
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	why  bytes.Buffer
}

// helper starts one, and waits until it has said that it is ready. It ends with the test.
func (f *mesh) helper(node, name, ready string, env ...string) *helper {
	f.t.Helper()
	h := &helper{f: f, name: name, cmd: f.command(node, os.Args[0])}
	h.cmd.Env = append(append(h.cmd.Env, "E2E_HELPER="+name), env...)
	h.cmd.Stderr = &h.why
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		h.in, err = h.cmd.StdinPipe()
	}
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = h.cmd.Process.Kill(); _ = h.cmd.Wait() }) // it may be over
	h.out = bufio.NewReader(out)
	if line, err := h.out.ReadString('\n'); line != ready {
		f.t.Fatalf("%s: %q, %v, %s", name, line, err, &h.why)
	}
	return h
}
