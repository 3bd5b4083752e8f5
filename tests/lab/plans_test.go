package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// plans are ways to give the ports of the triangle addresses. cable counts from 0, host from 1 within the mesh; an empty
// address is none.
var plans = []struct {
	name   string
	addr   func(cable, host int) string
	sample bool
}{
	{"a 30 per cable", func(cable, host int) string { return fmt.Sprintf("10.0.%d.%d/30", cable, 1+end(cable, host)) }, false},
	{"a 31 per cable", func(cable, host int) string { return fmt.Sprintf("10.0.%d.%d/31", cable, end(cable, host)) }, false},
	{"169.254 on every port", func(cable, host int) string { return fmt.Sprintf("169.254.%d.%d/16", cable, host) }, false},
	{"IPv6 only", func(cable, host int) string { return fmt.Sprintf("fd00:%d::%d/64", cable, host) }, false},
	{"no configured address", func(int, int) string { return "" }, true},
	{"a 24 per cable again", func(cable, host int) string { return fmt.Sprintf("192.168.%d.%d/24", 100+cable, host) }, true},
}

// end is 0 at one end of a cable of the triangle and 1 at the other.
func end(cable, host int) int {
	if cable+1 == host { // cable 0 begins at a, 1 at b, 2 at c
		return 0
	}
	return 1
}

// plan gives the ports of a running triangle new addresses and runs the driver: each pair of nodes finds its cable.
func (s *session) plan(t *testing.T, ctx context.Context, l *Lab, addr func(cable, host int) string) error {
	var b strings.Builder
	for i, c := range s.mesh.Cables {
		for _, e := range c.Ends {
			host := s.mesh.position(e.Machine)
			fmt.Fprintf(&b, "if [ $NODE = %s ]; then ip -4 addr flush dev %s; ip -6 addr flush dev %s scope global\n", e.Machine, e.Iface, e.Iface)
			if a := addr(i, host); a != "" {
				fmt.Fprintf(&b, "ip addr add %s dev %s\n", a, e.Iface)
			}
			b.WriteString("fi\n")
		}
	}
	b.WriteString("sleep 2\n") // duplicate address detection, and the GIDs that follow
	if _, err := run(ctx, l, b.String()); err != nil {
		return err
	}
	job := DriverJob{Args: []string{"--work", "sendrecv", "--max", "64K", "--factor", "64", "--iters", "1", "--timeout", "240"},
		Env: map[string]string{"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}, Port: s.nextPort()}
	results, err := run(ctx, l, job.Script(s.mesh))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, outputs(results))
	}
	out := outputs(results)
	for _, c := range s.mesh.Cables {
		from, to := c.Ends[0], c.Ends[1]
		want := fmt.Sprintf(": lane 0 %s:1 -> %s:1 ", from.Device, to.Device)
		found := false
		for line := range strings.Lines(out) {
			if strings.Contains(line, Host(from.Machine)+" -> "+Host(to.Machine)+" conn") && strings.Contains(line, ": lane") {
				found = true
				if !strings.Contains(line, want) || strings.Contains(line, "lane 1") {
					return fmt.Errorf("%s and %s: expected one lane over cable %s, not %s", Host(from.Machine), Host(to.Machine), c.Name, line)
				}
			}
		}
		if !found {
			return fmt.Errorf("no lane from %s to %s in\n%s", Host(from.Machine), Host(to.Machine), out)
		}
	}
	return nil
}
