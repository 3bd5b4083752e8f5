package bench

import (
	"context"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
)

// CollSchema names the form of a CollReport in JSON.
const CollSchema = "ncclmesh.bench-coll/1"

// Kinds are the collectives that there are.
var Kinds = []string{AllReduce, AllToAll, SendRecv}

// CollOptions are those of Collectives.
type CollOptions struct {
	Options
	Kinds       []string
	Least, Most int // bytes
	Factor      int // from a size to the next
	Times, Warm int
}

// CollReport is what collectives take.
type CollReport struct {
	Schema string   `json:"schema"`
	Ranks  []string `json:"ranks"`
	Sweep[CollRow]
}

// CollRow is a collective of one size.
type CollRow struct {
	Kind   string  `json:"kind"`
	Bytes  int     `json:"bytes"`
	Micros float64 `json:"micros"`
	Alg    float64 `json:"algGBs"` // GB/s: bytes in that time
	Bus    float64 `json:"busGBs"` // GB/s: that one port carries then
	Wrong  int64   `json:"wrong"`  // elements, of all ranks
}

func (r CollRow) result() (kind string, bytes int, wrong int64) { return r.Kind, r.Bytes, r.Wrong }

// Collectives measures collectives with a rank on each host, in their order.
func Collectives(ctx context.Context, f *fleet.Fleet, hosts []string, o CollOptions) (*CollReport, error) {
	o.say("starting agents")
	c, err := muster(ctx, f, hosts, &o.Options, o.request)
	if err != nil {
		return nil, err
	}
	defer c.dismiss()
	r := &CollReport{Schema: CollSchema}
	for _, m := range c {
		r.Ranks = append(r.Ranks, m.name)
	}
	r.limit(&o, c.memory())
	o.say("connecting")
	if err := c.connect(); err != nil {
		return nil, err
	}
	err = r.run(ctx, &o, func(kind string, bytes int) (CollRow, error) { return c.collective(kind, bytes, &o) })
	if err != nil {
		return nil, err
	}
	return r, nil
}

// connect has every rank connect to every other.
func (c crew) connect() error {
	handles := make([][][]byte, len(c)) // of each rank, by the rank that it listens at
	for i := range handles {
		handles[i] = make([][]byte, len(c))
	}
	for to, m := range c {
		var names []string
		for from := range c {
			if from != to {
				names = append(names, between(from, to))
			}
		}
		d, err := m.do(order{Listen: names})
		if err != nil {
			return err
		}
		for from := range c {
			handles[from][to] = d.Handles[between(from, to)]
		}
	}
	return fleet.Each(c, func(rank int, m *member) error {
		_, err := m.do(order{Join: &join{rank, handles[rank]}})
		return err
	})
}

// share is what one port carries of a collective's bytes, as nccl-tests counts.
func share(kind string, n int) float64 {
	switch kind {
	case AllReduce:
		return 2 * float64(n-1) / float64(n)
	case AllToAll:
		return float64(n-1) / float64(n)
	}
	return 1
}

// collective measures one. Its time is that of the slowest rank.
func (c crew) collective(kind string, bytes int, o *CollOptions) (row CollRow, err error) {
	bytes = max(bytes/4*4, 4)
	if kind == AllToAll {
		bytes = max(bytes/len(c), 1) * len(c)
	}
	o.say("%s of %d bytes", kind, bytes)
	p := &playing{Kind: kind, Bytes: bytes, Warm: o.Warm, Times: o.Times}
	answers := make([]*played, len(c))
	err = fleet.Each(c, func(rank int, m *member) error {
		d, err := m.do(order{Play: p})
		answers[rank] = d.Played
		return err
	})
	if err != nil {
		return row, err
	}
	row = CollRow{Kind: kind, Bytes: bytes}
	var slowest time.Duration
	for rank, a := range answers {
		if a == nil {
			return row, &fleet.HostError{Host: c[rank].name, Err: fleet.ErrGarbled}
		}
		slowest = max(slowest, a.Each)
		row.Wrong += a.Wrong
	}
	row.Micros = micros(slowest)
	row.Alg = float64(bytes) / max(slowest.Seconds(), 1e-9) / 1e9
	row.Bus = row.Alg * share(kind, len(c))
	return row, nil
}
