package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"ncclmesh/printable"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/launch"
)

// NCCLSchema names the form of an NCCLReport in JSON.
const NCCLSchema = "ncclmesh.bench-nccl/1"

// Collectives of NCCL that are measured, beside AllReduce.
const (
	AllGather     = "all_gather"
	ReduceScatter = "reduce_scatter"
	Broadcast     = "broadcast"
)

// NCCLKinds are the collectives that NCCL measures.
var NCCLKinds = []string{AllReduce, AllGather, ReduceScatter, Broadcast}

// NCCLOptions are those of NCCL.
type NCCLOptions struct {
	CollOptions
	GPUs    int    // of each host; 0: all
	File    string // NCCL's library on every host; "": it is looked for
	Setting launch.Setting
	Log     io.Writer // gets what the hosts write on standard error, in lines with their names; nil: nobody does
}

// NCCLReport is what NCCL's collectives take.
type NCCLReport struct {
	Schema string `json:"schema"`
	Ranks  []GPU  `json:"ranks"`
	Sweep[NCCLRow]

	Notes []string `json:"notes"` // what works against the plugin, with the hosts where it does
}

// A GPU is what a rank computes on.
type GPU struct {
	Host    string `json:"host"`
	Name    string `json:"name"`
	NCCL    string `json:"nccl"`    // its version
	Network string `json:"network"` // that NCCL was told to use; "" for its own choice
}

// NCCLRow is a collective of one size, from one buffer to another and in one buffer.
type NCCLRow struct {
	Kind     string  `json:"kind"`
	Bytes    int     `json:"bytes"`
	Count    int     `json:"count"` // float32, as nccl-tests counts them
	OutPlace Figures `json:"outOfPlace"`
	InPlace  Figures `json:"inPlace"`
}

// Figures are one time, and what follows from it.
type Figures struct {
	Micros float64 `json:"micros"` // mean of all ranks
	Alg    float64 `json:"algGBs"` // GB/s: bytes in that time
	Bus    float64 `json:"busGBs"` // GB/s: that one port carries then
	Wrong  int64   `json:"wrong"`  // elements, of all ranks
}

func (r NCCLRow) result() (kind string, bytes int, wrong int64) {
	return r.Kind, r.Bytes, r.OutPlace.Wrong + r.InPlace.Wrong
}

// NCCL measures collectives of NCCL with a rank on each GPU, in the order of hosts.
func NCCL(ctx context.Context, f *fleet.Fleet, hosts []string, o NCCLOptions) (*NCCLReport, error) {
	o.say("starting ranks")
	c, err := muster(ctx, f, hosts, &o.Options, o.request)
	if err != nil {
		return nil, err
	}
	defer c.dismiss()
	r := &NCCLReport{Schema: NCCLSchema}
	for _, m := range c {
		for _, gpu := range m.GPUs {
			r.Ranks = append(r.Ranks, GPU{m.name, gpu, m.NCCL, m.Network})
		}
	}
	r.Notes = c.notes()
	if len(r.Ranks) < 2 {
		return nil, errors.New("there is one GPU only; want two ranks or more")
	}
	r.limit(&o.CollOptions, c.memory())
	o.say("connecting %d ranks", len(r.Ranks))
	if err := c.meet(len(r.Ranks), o.Most); err != nil {
		return nil, err
	}
	err = r.run(ctx, &o.CollOptions, func(kind string, bytes int) (NCCLRow, error) { return c.ncclRow(kind, bytes, len(r.Ranks), &o) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// request is that for an agent on a host.
func (o *NCCLOptions) request(host string) fleet.Request {
	r := fleet.Request{Do: DoNCCL, Silence: silence, With: ncclSetup{WhileBusy: o.WhileBusy, GPUs: o.GPUs, File: o.File, Setting: o.Setting}}
	if o.Log != nil {
		r.Log = &lineWriter{to: o.Log, prefix: host + ": "}
	}
	return r
}

// notes are what works against the plugin, with the hosts where it does.
func (c crew) notes() []string {
	notes, hosts := []string{}, map[string][]string{}
	for _, m := range c {
		for _, note := range m.Against {
			if hosts[note] == nil {
				notes = append(notes, note)
			}
			hosts[note] = append(hosts[note], m.name)
		}
	}
	for i, note := range notes {
		notes[i] = strings.Join(hosts[note], ", ") + ": " + note
	}
	return notes
}

// lineWriter puts a prefix before each line.
type lineWriter struct {
	to     io.Writer // is written to by all hosts, a line at a time
	prefix string
	begun  []byte
}

var logging sync.Mutex

func (w *lineWriter) Write(p []byte) (int, error) {
	w.begun = append(w.begun, p...)
	for {
		line, rest, ok := bytes.Cut(w.begun, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		logging.Lock()
		_, err := fmt.Fprintf(w.to, "%s%s\n", w.prefix, printable.Line(string(line), len(line)))
		logging.Unlock()
		w.begun = bytes.Clone(rest)
		if err != nil {
			return len(p), err
		}
	}
}

// meet makes a communicator of all GPUs, each with buffers of so many bytes.
func (c crew) meet(ranks, bytes int) error {
	err := fleet.Each(c, func(_ int, m *member) error {
		_, err := m.do(order{Allocate: roundUp(bytes, 4*ranks)})
		return err
	})
	if err != nil {
		return err
	}
	d, err := c[0].do(order{Unique: true})
	if err != nil {
		return err
	}
	first := make([]int, len(c)) // rank of each host
	for i := range c[1:] {
		first[i+1] = first[i] + len(c[i].GPUs)
	}
	return c.together(func(i int, m *member) error {
		_, err := m.do(order{Meet: &meeting{ID: d.Unique, Ranks: ranks, First: first[i]}})
		return err
	})
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// ncclShare is what one port carries of a collective's bytes, as nccl-tests counts.
func ncclShare(kind string, n int) float64 {
	switch kind {
	case AllReduce:
		return 2 * float64(n-1) / float64(n)
	case AllGather, ReduceScatter:
		return float64(n-1) / float64(n)
	}
	return 1
}

// ncclRow measures a collective out of place and in place.
func (c crew) ncclRow(kind string, bytes, ranks int, o *NCCLOptions) (NCCLRow, error) {
	p := newPart(kind, bytes, ranks)
	row := NCCLRow{Kind: kind, Bytes: p.total(), Count: p.count}
	o.say("%s of %d bytes", kind, row.Bytes)
	for i, figures := range []*Figures{&row.OutPlace, &row.InPlace} {
		if err := c.ncclMeasure(&gpuPlaying{Kind: kind, Bytes: bytes, InPlace: i == 1, Warm: o.Warm, Times: o.Times}, figures); err != nil {
			return row, err
		}
		seconds := max(figures.Micros/1e6, 1e-9)
		figures.Alg = float64(row.Bytes) / seconds / 1e9
		figures.Bus = figures.Alg * ncclShare(kind, ranks)
	}
	return row, nil
}

func (c crew) ncclMeasure(p *gpuPlaying, into *Figures) error {
	answers := make([][]played, len(c))
	err := c.together(func(i int, m *member) error {
		d, err := m.do(order{GPUPlay: p})
		answers[i] = d.GPUPlayed
		return err
	})
	if err != nil {
		return err
	}
	all := slices.Concat(answers...)
	if len(all) == 0 {
		return fleet.ErrGarbled
	}
	for _, a := range all {
		into.Micros += micros(a.Each) / float64(len(all))
		into.Wrong += a.Wrong
	}
	return nil
}
