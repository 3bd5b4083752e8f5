package nccl

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ncclmesh/tests/fabric"
)

// A Choice is how NCCL did a collective, as the kernels saw it.
type Choice struct {
	How      string // algorithm and protocol
	Channels string
}

// Choices are those of one communicator.
type Choices struct {
	Version string
	Tuned   bool
	Nodes   int

	Channels, PerPeer string   // that NCCL opened, for collectives and for sends to a peer
	Speed             string   // of the network, that NCCL found, in GB/s
	Chosen            []Choice // by size of ChoiceSizes
}

// ChoiceSizes are bytes of an all-reduce.
var ChoiceSizes = []int{8, 4 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20}

var (
	kernelLine   = regexp.MustCompile(`^kernel AllReduce (\S+ \S+) channels=(\d+)$`)
	channelsLine = regexp.MustCompile(`(\d+) p2p channels per peer`)
)

// arm is a topology file by which NCCL takes the processor for a GB10's: on x86 it
// assumes that what goes through the processor takes more of a PCI link.
const arm = `<system version="1"><cpu numaid="-1" affinity="3" arch="arm64" vendor="" familyid="0" modelid="0" host_hash="0x1"></cpu></system>`

// Choose asks one version for its choices on machines like a GB10, cabled in a ring,
// with the tuner or without. The topology file is written there.
func Choose(ctx context.Context, f *fabric.Fabric, v Version, j Job, tuned bool, topology string) (Choices, error) {
	c := Choices{Version: v.Name, Tuned: tuned, Nodes: len(f.Nodes)}
	if err := write(topology, arm); err != nil {
		return c, err
	}
	j.Steps = []string{"init"}
	for _, size := range ChoiceSizes {
		j.Steps = append(j.Steps, fmt.Sprintf("check allreduce f32 sum %d", size/4))
	}
	j.Steps = append(j.Steps, "destroy")
	j.Env = append(j.Env, "SHOW_KERNELS=1", "NCCL_TOPO_FILE="+topology, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,GRAPH",
		"NCCL_MESH_TRANSPORT=auto") // opposite nodes of a ring share no cable, and NCCL connects its trees beforehand
	if !tuned {
		j.Env = append(j.Env, "NCCL_MESH_TUNER=0")
	}
	results, err := j.Run(ctx, f)
	if err := cmp.Or(err, Failed(results)); err != nil {
		return c, err
	}
	for line := range strings.Lines(results[0].Output) {
		c.read(strings.TrimSpace(line))
	}
	if len(c.Chosen) < len(ChoiceSizes) {
		return c, fmt.Errorf("%d of %d choices are told:\n%s", len(c.Chosen), len(ChoiceSizes), results[0].Output)
	}
	c.Chosen = c.Chosen[:len(ChoiceSizes)] // the last is of the ranks' agreement to end
	return c, nil
}

func (c *Choices) read(line string) {
	if f := kernelLine.FindStringSubmatch(line); f != nil {
		c.Chosen = append(c.Chosen, Choice{f[1], f[2]})
	}
	if f := channelLine.FindStringSubmatch(line); f != nil {
		c.Channels = f[1]
	}
	if f := channelsLine.FindStringSubmatch(line); f != nil {
		c.PerPeer = f[1]
	}
	if f := speedLine.FindStringSubmatch(line); f != nil {
		var n, bw float64
		_, _ = fmt.Sscan(f[1]+" "+f[2], &n, &bw)
		c.Speed = fmt.Sprintf("%.1f", n*bw)
	}
}

// ChoiceTable is the choices as Markdown, a row for each communicator.
func ChoiceTable(all []Choices) string {
	var b strings.Builder
	b.WriteString("| nodes | NCCL | tuner | GB/s that NCCL finds | channels | of a send |")
	for _, size := range ChoiceSizes {
		fmt.Fprintf(&b, " %s |", sizeText(size))
	}
	b.WriteString("\n|" + strings.Repeat("---|", 6+len(ChoiceSizes)) + "\n")
	for _, c := range all {
		tuner := "no"
		if c.Tuned {
			tuner = "yes"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s |", c.Nodes, c.Version, tuner, c.Speed, c.Channels, c.PerPeer)
		for _, how := range c.Chosen {
			fmt.Fprintf(&b, " %s %s |", how.How, how.Channels)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func sizeText(bytes int) string {
	units := []string{"B", "KiB", "MiB"}
	i := slices.IndexFunc([]int{1 << 10, 1 << 20, 1 << 30}, func(limit int) bool { return bytes < limit })
	return fmt.Sprintf("%d %s", bytes>>(10*i), units[i])
}
