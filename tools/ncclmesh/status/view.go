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
	r := &Report{Schema: Schema, Time: time.Now().UTC(), Processes: []Process{}, Errors: []Trouble{}}
	seen, troubles, err := lookAll(ctx, v.Find)
	if err != nil {
		return nil, err
	}
	r.Errors = append(r.Errors, troubles...)
	now := map[string]*stats.Snapshot{}
	for i := range seen {
		l := &seen[i]
		now[l.name] = l.snap
		r.Processes = append(r.Processes, processOf(v.before[l.name], l))
	}
	v.before = now
	return r, nil
}
