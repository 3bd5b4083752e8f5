package status

import (
	"context"
	"time"

	"ncclmesh/transport/stats"
)

// A Viewer looks at all processes again and again, by one goroutine.
type Viewer struct {
	Find func() ([]string, error) // names of windows

	before map[string]*stats.Snapshot // the last look at each process, by its window
}

// Look looks at all processes, and compares with the look before: rates are those since.
func (v *Viewer) Look(ctx context.Context) (*Report, error) {
	names, err := v.Find()
	if err != nil {
		return nil, err
	}
	r := &Report{Schema: Schema, Time: time.Now().UTC(), Processes: []Process{}, Errors: []Trouble{}}
	now := map[string]*stats.Snapshot{}
	for _, l := range lookAll(ctx, names) {
		switch {
		case l.gone():
		case l.err != nil:
			r.Errors = append(r.Errors, l.trouble())
		default:
			now[l.name] = l.snap
			r.Processes = append(r.Processes, processOf(v.before[l.name], &l))
		}
	}
	v.before = now
	return r, nil
}
