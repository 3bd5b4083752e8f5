package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// carried is how many bytes a node's ends of cables with a rate have sent, by device.
func (f *mesh) carried(node string) map[string]int64 {
	f.t.Helper()
	sent := map[string]int64{}
	for line := range strings.Lines(f.fault("show")) {
		words := strings.Fields(line)
		if words[0] != "link" {
			continue
		}
		for i := 1; i < 5; i += 2 {
			if at, dev, _ := strings.Cut(words[i], ":"); at == node {
				var n int64
				if _, err := fmt.Sscan(words[i+1], &n); err != nil {
					f.t.Fatalf("%q: %v", line, err)
				}
				dev, _, _ = strings.Cut(dev, "/")
				sent[dev] = n
			}
		}
	}
	return sent
}

// stream waits until a node has sent so many bytes more, and returns what part of them a device has carried.
func (j *job) stream(node, device string, bytes int64) (part float64) {
	j.f.t.Helper()
	before := j.f.carried(node)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var all int64
		now := j.f.carried(node)
		for d := range now {
			all += now[d] - before[d]
		}
		if all >= bytes {
			return float64(now[device]-before[device]) / float64(all)
		}
		select {
		case <-j.rank(node).over:
			j.fatalf("node %s ended after %d of %d bytes", node, all, bytes)
		default:
		}
		if time.Now().After(deadline) {
			j.fatalf("node %s sent %d of %d bytes in %v", node, all, bytes, patience)
		}
	}
}

// A lane that slows down while a stream runs over it carries less of it once what it holds by then has gone, and its part again
// when it is as fast as before. At a quarter of the other's speed its part would be a fifth if the other never waited; it does, while
// messages whose part it has carried stand behind one that is not done.
func TestLaneSlowsDown(t *testing.T) {
	require.Full(t, "transport/lane TestSpeedRecovers")
	t.Parallel()
	f := newFabric(t, strings.NewReplacer("b:r0\n", "b:r0 rate 16MB\n", "b:r1\n", "b:r1 rate 16MB\n").Replace(twins))
	j := f.start(spec{args: strings.Fields("--work alltoall --min 8M --max 8M --chunk 1M --depth 8 --iters 100 --warmup 0 --check once")})
	phases := []struct {
		name, rate  string
		least, most float64
	}{
		{"equal cables", "16000000", 0.45, 0.55},
		{"one at a quarter", "4000000", 0.15, 0.35},
		{"equal again", "16000000", 0.45, 0.55},
	}
	for _, p := range phases {
		f.fault("rate", "a:r1", p.rate)
		j.stream("a", "r1", 8<<20) // a quarter of a second of both cables, and more than a connection has under way
		part := j.stream("a", "r1", 16<<20)
		t.Logf("%s: r1 carried %.3f", p.name, part)
		if part < p.least || part > p.most {
			j.errorf("%s: r1 carried %.3f, want %g to %g", p.name, part, p.least, p.most)
		}
	}
	for _, port := range []string{"a:r0", "a:r1"} {
		f.fault("rate", port, "100G")
	}
	j.ok()
}
