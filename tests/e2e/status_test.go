package e2e

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// cableStatus is what ncclmesh status --json says of a cable, as far as is looked at.
type cableStatus struct {
	Peer, Cable, Kind, State string
	Up                       int `json:"ways_up"`
	Lost                     uint64
	Ways                     []struct{ Sent, Received struct{ Bytes uint64 } }
}

// moved reports whether every way of the cable has carried something in both directions.
func (c cableStatus) moved() bool {
	return !slices.ContainsFunc(c.Ways, func(w struct{ Sent, Received struct{ Bytes uint64 } }) bool {
		return w.Sent.Bytes == 0 || w.Received.Bytes == 0
	})
}

type processStatus struct {
	PID     int
	Kind    string
	Vtable  int
	Peers   int
	Cables  []cableStatus
	Words   []struct{ Text string }
	Relay   struct{ Circuits, Bytes uint64 }
	Command string
}

// command runs ncclmesh on a node, and returns what it writes and says.
func (f *mesh) ncclmesh(node string, args ...string) (stdout, stderr string) {
	f.t.Helper()
	f.needsCommand()
	var out, said bytes.Buffer
	cmd := f.command(node, filepath.Join(built, "ncclmesh"), args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		f.t.Fatalf("%v: %v: %s", cmd, err, &said)
	}
	return out.String(), said.String()
}

// status is what is to be seen of the processes on a node.
func (f *mesh) status(node string) []processStatus {
	f.t.Helper()
	out, said := f.ncclmesh(node, "status", "--json", "--interval", "10ms")
	var r struct {
		Schema    string
		Processes []processStatus
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Schema != "ncclmesh.status/1" || said != "" {
		f.t.Fatalf("%v: %s%s", err, out, said)
	}
	return r.Processes
}

// awaitStatus looks at a job's one process on a node until it is as it should be.
func (j *job) awaitStatus(node, what string, is func(p *processStatus) bool) processStatus {
	j.f.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		all := j.f.status(node)
		if len(all) == 1 && is(&all[0]) {
			return all[0]
		}
		select {
		case <-j.rank(node).over:
			j.fatalf("node %s ended before %s: %+v", node, what, all)
		default:
		}
		if time.Now().After(deadline) {
			j.fatalf("no %s in %v: %+v", what, patience, all)
		}
	}
}

// A job is seen from outside while it runs: what goes over its cables, which of them is gone, and that it is back.
func TestStatus(t *testing.T) {
	t.Parallel()
	f := newFabric(t, `
port a r0 netdev one addr 192.168.1.1/24 cage p0 image a
port a r1 netdev two addr 192.168.2.1/24 cage p0 image a
port b r0 netdev ep7np1 addr 192.168.1.2/24 cage p1 image b
port b r1 netdev ep8np1 addr 192.168.2.2/24 cage p1 image b
link a:r0 b:r0 rate 100MB
link a:r1 b:r1 rate 100MB
`)
	j := f.start(spec{args: soak(300)})
	j.moves()
	p := j.awaitStatus("a", "traffic", func(p *processStatus) bool {
		return len(p.Cables) == 2 && p.Cables[0].moved() && p.Cables[1].moved()
	})
	if p.PID != j.rank("a").cmd.Process.Pid || p.Kind != "job" || p.Vtable != 12 || p.Peers != 2 || p.Command != "netdriver" {
		j.errorf("process %+v; pid %d", p, j.rank("a").cmd.Process.Pid)
	}
	for i, peer := range []string{"a", "b"} { // ranks talk to themselves, too
		c := p.Cables[i]
		if c.Peer != peer || c.Cable != map[string]string{"a": "p0═one", "b": "p0═p1"}[peer] || c.Kind != "rdma" || c.Up != len(c.Ways) || c.State != "ok" || c.Lost != 0 {
			j.errorf("cable %+v", c)
		}
	}
	j.suffer("unplug a:r1")
	p = j.awaitStatus("a", "loss", func(p *processStatus) bool { return p.Cables[1].Up == 1 })
	if c := p.Cables[1]; len(c.Ways) != 2 || !regexp.MustCompile(`^two down \d\d:\d\d$`).MatchString(c.State) || c.Lost == 0 {
		j.errorf("without a cable %+v", c)
	}
	if !slices.ContainsFunc(p.Words, func(w struct{ Text string }) bool {
		return strings.Contains(w.Text, "its traffic goes over the 1 lane left")
	}) {
		j.errorf("last words %+v", p.Words)
	}
	text, _ := f.ncclmesh("a", "status", "--interval", "100ms")
	t.Log("\n" + text)
	if want := regexp.MustCompile(`(?m)^b +p0═p1 +1/2 rdma +\S+ +\S+ +[1-9] +two down \d\d:\d\d$`); !want.MatchString(text) {
		j.errorf("want %v in\n%s", want, text)
	}
	text, _ = f.ncclmesh("a", "metrics")
	for _, want := range []string{`(?m)^ncclmesh_lane_up\{.*peer="b",cable="p0═p1",device="r1",port="1",kind="rdma",through=""\} 0$`, `(?m)^ncclmesh_lane_bytes_total\{.*device="r0".*direction="sent"\} [1-9]`} {
		if !regexp.MustCompile(want).MatchString(text) {
			j.errorf("want %s in\n%s", want, text)
		}
	}
	j.suffer("plug a:r1")
	p = j.awaitStatus("a", "return", func(p *processStatus) bool { return p.Cables[1].Up == 2 })
	if c := p.Cables[1]; c.State != "ok" || c.Lost == 0 {
		j.errorf("with the cable again %+v", c)
	}
}

// A relay is seen as well, and what it carries.
func TestStatusOfRelay(t *testing.T) {
	t.Parallel()
	f := newFabric(t, line3.without().topology())
	b := f.relay("b")
	j := f.start(spec{nodes: []string{"a", "c"}, env: plainly, args: soak(300)})
	j.moves()
	p := b.awaitStatus("b", "circuits", func(p *processStatus) bool { return p.Relay.Circuits > 0 && p.Relay.Bytes > 0 })
	if p.Kind != "relay" || len(p.Cables) > 0 {
		b.errorf("the relay: %+v", p)
	}
	through := func(p *processStatus) bool {
		return slices.ContainsFunc(p.Cables, func(c cableStatus) bool {
			return c.Peer == "c" && c.Kind == "relayed" && c.State == "ok, through b" && c.Ways[0].Sent.Bytes > 0
		})
	}
	j.awaitStatus("a", "a way through b", through)
	text, _ := f.ncclmesh("a", "status", "--interval", "100ms")
	t.Log("\n" + text)
}

// A child that a killed rank leaves behind keeps nobody looking at it: it has neither the socket nor the memory.
func TestStatusOfForked(t *testing.T) {
	t.Parallel()
	f := newFabric(t, pair)
	j := f.start(spec{nodes: []string{"a", "b"}, args: []string{"--work", "die", "--die-rank", "1", "--orphans", "1", "--die-limit-ms", "300000"}}) // the child lives longer than any look at it
	<-j.rank("b").over
	out, err := f.command("b", "sh", "-c", `for p in /proc/[0-9]*; do
	[ "$(readlink $p/ns/net)" = "$(readlink /proc/self/ns/net)" ] || continue
	[ "$(cat $p/comm)" = netdriver ] || continue
	echo child; grep -h ncclmesh $p/maps; ls -l $p/fd | grep ncclmesh
	kill -9 ${p#/proc/}
done; grep @ncclmesh /proc/net/unix`).Output()
	if got := string(out); got != "child\n" {
		t.Errorf("the child has: %q, %v", got, err)
	}
	if all := f.status("b"); len(all) > 0 {
		t.Errorf("to be seen: %+v", all)
	}
}
