package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/topo"
)

const topoLong = `Sends packets over every cable between nodes, as the plugin does, and draws the mesh.

On every HOST an agent of this command opens the ports, finds the neighbour on each,
and sends packets over every path to the other hosts, over RDMA and over TCP. It
concludes nothing from addresses; none are needed. With one HOST, or none,
this node takes part as well; its own name means this node, without ssh. Neither root
nor a running job is needed, and a job that runs is not disturbed. Agents read the
plugin's variables (NCCL_SOCKET_IFNAME, NCCL_MESH_KEY ...) where they run: as ssh sets them.

--expect FILE compares: FILE has a line for each cable, as "a:p0 b:p1", or is what
--json has written once. Differences are shown with the fewest plugs to move.

` + topoStatus

const topoExample = `  ncclmesh topo spark-2                       # this node and another
  ncclmesh topo spark-1 spark-2 spark-3 --svg mesh.svg
  ncclmesh topo spark-1 spark-2 --json >cables.json
  ncclmesh topo spark-1 spark-2 --expect cables.json`

// topoFlags are those of ncclmesh topo.
type topoFlags struct {
	hosts     hostFlags
	expect    string
	json, dot bool
	svg       string
}

func topoCommand(sys *system) *cobra.Command {
	var f topoFlags
	c := &cobra.Command{
		Use:     "topo [HOST...]",
		Short:   "Test every cable between nodes with packets, and draw the mesh",
		Long:    topoLong,
		Example: topoExample,
		RunE:    func(c *cobra.Command, hosts []string) error { return runTopo(c, sys, f, hosts) },
	}
	f.hosts.addRanks(sys, c)
	c.Flags().StringVar(&f.expect, "expect", "", "compare with the cables in `FILE`")
	c.Flags().BoolVar(&f.json, "json", false, "write the map in JSON, schema "+topo.Schema)
	c.Flags().BoolVar(&f.dot, "dot", false, "write the map for Graphviz")
	c.Flags().StringVar(&f.svg, "svg", "", "draw the map into `FILE` too; - is standard output, instead of text")
	c.MarkFlagsMutuallyExclusive("json", "dot")
	return c
}

func runTopo(c *cobra.Command, sys *system, f topoFlags, hosts []string) error {
	var expected *topo.Expected
	if f.expect != "" {
		text, err := os.ReadFile(f.expect)
		if err == nil {
			expected, err = topo.ParseExpected(text)
		}
		if err != nil {
			return fmt.Errorf("--expect %s: %w", f.expect, err)
		}
	}
	fleet, hosts, err := f.hosts.fleet(sys, hosts)
	if err != nil {
		return err
	}
	p := newProgress(sys, "sending packets over the cables of "+count(len(hosts), "host"))
	m, err := topo.Survey(c.Context(), fleet, hosts, true)
	p.end()
	if err != nil {
		return failure{err}
	}
	var d *topo.Difference
	if expected != nil {
		if d, err = m.Compare(expected); err != nil {
			return failure{errors.Join(fmt.Errorf("--expect %s: %w", f.expect, err), m.Err())}
		}
	}
	if err := f.write(sys, m, d); err != nil {
		return failure{err}
	}
	switch err := m.Err(); {
	case err != nil && !slices.ContainsFunc(m.Nodes, func(n topo.Node) bool { return n.Error == "" }):
		return err
	case err != nil:
		return failure{err}
	}
	if d != nil && !d.None() {
		return failure{fmt.Errorf("the nodes are not cabled as %s says", f.expect)}
	}
	return nil
}

// write writes the map, and the difference if one was asked for.
func (f *topoFlags) write(sys *system, m *topo.Map, d *topo.Difference) error {
	var errs []error
	if f.svg != "" {
		errs = append(errs, toFile(f.svg, sys.stdout, m.WriteSVG))
	}
	switch {
	case f.json:
		errs = append(errs, writeJSON(sys.stdout, struct {
			*topo.Map
			Difference *topo.Difference `json:"difference,omitempty"`
		}{m, d}))
		return errors.Join(errs...)
	case f.dot:
		errs = append(errs, m.WriteDOT(sys.stdout))
	case f.svg != "-":
		var b strings.Builder
		errs = append(errs, m.WriteText(&b))
		_, err := io.WriteString(sys.stdout, hang(b.String(), columns(sys.stdout)))
		errs = append(errs, err)
	}
	if d != nil && f.svg != "-" && !f.dot {
		_, err := fmt.Fprintln(sys.stdout, strings.Join(d.Lines(), "\n"))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writeJSON writes a document that people may read too.
func writeJSON(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// toFile writes into a file, or to standard output for -.
func toFile(path string, stdout io.Writer, write func(io.Writer) error) (err error) {
	if path == "-" {
		return write(stdout)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
