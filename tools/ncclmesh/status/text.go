package status

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"ncclmesh/transport/stats"
)

// WriteText shows the processes to people.
func (r *Report) WriteText(w io.Writer) error {
	if len(r.Processes) == 0 {
		_, err := fmt.Fprintln(w, "no process with the plugin, and no relay, is visible here")
		return err
	}
	for i := range r.Processes {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := r.Processes[i].writeText(w, r.Time); err != nil {
			return err
		}
	}
	return nil
}

// newest is how many of the last words people are shown.
const newest = 3

// writeText shows a process to people.
func (p *Process) writeText(w io.Writer, now time.Time) error {
	title := fmt.Sprintf("pid %d %s  ", p.PID, p.Command)
	switch {
	case p.Kind == stats.Relaying.String():
		title += "relay"
	case p.Vtable > 0:
		title += fmt.Sprintf("NCCL Mesh v%d", p.Vtable)
	default:
		title += "NCCL Mesh"
	}
	fmt.Fprintf(w, "%s  peers %d\n", title, p.Peers)
	if len(p.Cables) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "PEER\tCABLE\tLANES\tTX GB/s\tRX GB/s\tLOST\tSTATE")
		for _, c := range p.Cables {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", c.Peer, c.Cable, c.lanes(), gigabytes(c.SentPerSec), gigabytes(c.ReceivedPerSec), c.Lost, c.State)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if p.Relay.Carried > 0 || p.Kind == stats.Relaying.String() {
		fmt.Fprintf(w, "relays for others: %d now, %d in all, %s GB\n", p.Relay.Circuits, p.Relay.Carried, gigabytes(float64(p.Relay.Bytes)))
	}
	if m := p.More; m.Connections > 0 || m.Lanes > 0 {
		fmt.Fprintf(w, "and %d connections and %d lanes more than can be shown\n", m.Connections, m.Lanes)
	}
	if p.More.Ways {
		fmt.Fprintln(w, "and more paths to peers than can be shown, with their lanes")
	}
	for _, said := range p.Words[max(0, len(p.Words)-newest):] {
		if _, err := fmt.Fprintf(w, "%s ago: %s\n", clock(max(0, now.Sub(said.Time).Seconds())), said.Text); err != nil {
			return err
		}
	}
	return nil
}

// gigabytes is a number of bytes in GB, with as many digits as are of interest.
func gigabytes(perSecond float64) string {
	switch g := perSecond / 1e9; {
	case g == 0:
		return "0"
	case g < 0.1:
		return fmt.Sprintf("%.2g", g)
	default:
		return fmt.Sprintf("%.1f", g)
	}
}

// lanes is how many of the ways over a cable are in service, of those there have been.
func (c *Cable) lanes() string {
	if c.Up == len(c.Ways) {
		return fmt.Sprintf("%d %s", c.Up, c.Kind)
	}
	return fmt.Sprintf("%d/%d %s", c.Up, len(c.Ways), c.Kind)
}

// clock is a time for people, as 00:41 or 1:02:03.
func clock(seconds float64) string {
	s := int(seconds)
	if s < 3600 {
		return fmt.Sprintf("%02d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
