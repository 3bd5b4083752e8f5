package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job is one run of the driver with a rank on each of some nodes.
type job struct {
	f      *mesh
	number int // of the fabric's jobs
	ranks  []*rank
}

// rank is one process of a job.
type rank struct {
	node string
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended

	status int // of the process once it is over, 128 and the signal when killed
	ended  time.Time

	mu    sync.Mutex
	lines []line
	rest  []byte
}

// line is something that a rank said.
type line struct {
	at   time.Time
	text string
}

// spec is what makes a job.
type spec struct {
	nodes []string            // all of the fabric when nil
	env   []string            // of all ranks
	on    map[string][]string // more of it for a node
	args  []string            // of the driver

	argsOn map[string][]string // more of them for a node
}

// Write takes a rank's output.
func (r *rank) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, b...)
	for {
		l, rest, ok := bytes.Cut(r.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		r.addLocked(string(l))
		r.rest = rest
	}
}

// addLocked takes one line of a rank's output. The plugin's log cuts a long message into several, which are one line here.
func (r *rank) addLocked(text string) {
	_, more, cut := strings.Cut(text, " NET/Mesh : ... ")
	if !cut {
		r.lines = append(r.lines, line{time.Now(), text})
		return
	}
	for n := len(r.lines); n > 0; n-- {
		if l := &r.lines[n-1]; l.text != "" { // NCCL's warnings follow an empty line
			l.text += more
			r.lines = r.lines[:n]
			return
		}
	}
}

// output is what the rank has said so far.
func (r *rank) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, l := range r.lines {
		b.WriteString(l.text + "\n")
	}
	b.Write(r.rest)
	return b.String()
}

// said returns when the rank first said something that matches.
func (r *rank) said(pattern string) (time.Time, string, bool) {
	if all := r.linesOf(pattern); len(all) > 0 {
		return all[0].at, all[0].text, true
	}
	return time.Time{}, "", false
}

// linesOf are the lines of the rank that match, and count how many they are.
func (r *rank) linesOf(pattern string) (all []line) {
	re := regexp.MustCompile(pattern)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if re.MatchString(l.text) {
			all = append(all, l)
		}
	}
	return all
}

func (r *rank) count(pattern string) int { return len(r.linesOf(pattern)) }

// start starts a job. Unless its environment says otherwise receivers that are not ready are errors, nothing falls back to TCP, and
// nodes go by their names.
func (f *mesh) start(s spec) *job {
	f.t.Helper()
	if s.nodes == nil {
		s.nodes = f.Nodes
	}
	f.jobs++
	j := &job{f: f, number: f.jobs}
	f.t.Cleanup(j.stop)
	for i, node := range s.nodes {
		args := append([]string{"--plugin", filepath.Join(built, "libnccl-net-mesh.so"), "--rank", fmt.Sprint(i), "--nranks", fmt.Sprint(len(s.nodes)),
			"--rendezvous", fmt.Sprintf("%s:%d", s.nodes[0], 29500+f.jobs)}, slices.Concat(s.args, s.argsOn[node])...)
		cmd := f.command(node, filepath.Join(built, "netdriver"), args...)
		cmd.Env = append(cmd.Env, "NCCL_SOCKET_IFNAME=mgmt0", "NCCL_DEBUG=INFO", "NCCL_MESH_RNR_RETRY=0", "NCCL_MESH_TRANSPORT=rdma", "NCCL_HOSTID="+node)
		cmd.Env = append(append(cmd.Env, s.env...), s.on[node]...)
		j.ranks = append(j.ranks, f.spawn(node, cmd))
	}
	return j
}

// spawn starts a command on a node.
func (f *mesh) spawn(node string, cmd *exec.Cmd) *rank {
	f.t.Helper()
	r := &rank{node: node, cmd: cmd, over: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r, r
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the status says it
		r.ended = time.Now()
		r.status = cmd.ProcessState.ExitCode()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			r.status = 128 + int(ws.Signal())
		}
		close(r.over)
	}()
	return r
}

// stop ends what is left of the job.
func (j *job) stop() {
	for _, r := range j.ranks {
		_ = r.cmd.Process.Kill() // it may be over
		<-r.over
	}
}

// rank returns the rank on a node.
func (j *job) rank(node string) *rank {
	for _, r := range j.ranks {
		if r.node == node {
			return r
		}
	}
	j.f.t.Fatalf("there is no rank on node %s", node)
	return nil
}

// wait waits until all ranks have ended.
func (j *job) wait() *job {
	j.f.t.Helper()
	guard := time.After(patience)
	for _, r := range j.ranks {
		select {
		case <-r.over:
		case <-guard:
			j.fatalf("rank on %s has not ended in %v", r.node, patience)
		}
	}
	return j
}

// await waits until a rank says something that matches, and returns the line.
func (j *job) await(node, pattern string) string {
	j.f.t.Helper()
	r := j.rank(node)
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if _, text, ok := r.said(pattern); ok {
			return text
		}
		select {
		case <-r.over:
			if _, text, ok := r.said(pattern); ok {
				return text
			}
			j.fatalf("node %s ended without saying %q", node, pattern)
		default:
		}
		if time.Now().After(deadline) {
			j.fatalf("node %s did not say %q in %v", node, pattern, patience)
		}
	}
}

// ok waits for the job and fails the test unless all was right.
func (j *job) ok() *job {
	j.f.t.Helper()
	j.wait()
	for _, r := range j.ranks {
		if r.status != 0 {
			j.fatalf("rank on %s: status %d", r.node, r.status)
		}
		if _, _, ok := r.said(`ok, #wrong 0$`); !ok {
			j.fatalf("rank on %s does not say that nothing was wrong", r.node)
		}
		j.clean(r)
	}
	return j
}

// clean fails the test if a rank's plugin has left something behind, or met what may not be.
func (j *job) clean(r *rank) {
	j.f.t.Helper()
	for _, never := range []string{`left something behind`, `regions still registered`, `ncclInternalError`, `panic`, `did not drain`, `receiver not ready|RNR`} {
		if _, text, ok := r.said(never); ok {
			j.errorf("node %s says %q", r.node, text)
		}
	}
}

// must fails the test unless a rank has said something that matches.
func (j *job) must(node, pattern string) {
	j.f.t.Helper()
	if _, _, ok := j.rank(node).said(pattern); !ok {
		j.errorf("node %s did not say %q", node, pattern)
	}
}

// one fails the test unless some rank has said something that matches, and returns it: the others may only have heard of the end.
func (j *job) one(pattern string) string {
	j.f.t.Helper()
	for _, r := range j.ranks {
		if _, text, ok := r.said(pattern); ok {
			return text
		}
	}
	j.errorf("nobody said %q", pattern)
	return ""
}

// logs is what all nodes have said.
func (j *job) logs() string {
	var b strings.Builder
	for _, r := range j.ranks {
		fmt.Fprintf(&b, "--- node %s (%v)\n%s", r.node, r.cmd.Args, r.output())
	}
	return b.String()
}

func (j *job) fatalf(format string, args ...any) {
	j.f.t.Helper()
	j.f.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), j.logs())
}

func (j *job) errorf(format string, args ...any) {
	j.f.t.Helper()
	j.f.t.Errorf("%s\n%s", fmt.Sprintf(format, args...), j.logs())
}
