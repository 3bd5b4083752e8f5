package bench

import (
	"context"
	"errors"
	"fmt"
)

// A row is what was measured of a collective of one size.
type row interface {
	result() (kind string, bytes int, wrong int64) // wrong: elements, of all ranks
}

// Sweep is the part of a report that measures collectives of several kinds, from a size to another.
type Sweep[R row] struct {
	Most int `json:"mostBytes"` // that memory leaves room for, where that is less than was asked for; else 0
	Rows []R `json:"rows"`
}

// limit has the sizes fit into the memory of every node, with a buffer for what is sent and one for what is received.
func (s *Sweep[R]) limit(o *CollOptions, memory int64) {
	s.Rows = []R{}
	if most := memory / 2; int64(o.Most) > most {
		o.Most, s.Most = int(most), int(most)
	}
}

// run measures all kinds and sizes, until one fails or the context ends.
func (s *Sweep[R]) run(ctx context.Context, o *CollOptions, measure func(kind string, bytes int) (R, error)) error {
	for _, kind := range o.Kinds {
		for bytes := o.Least; bytes <= o.Most; bytes *= o.Factor {
			row, err := measure(kind, bytes)
			if err != nil {
				return err
			}
			s.Rows = append(s.Rows, row)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Err is what arrived wrong.
func (s *Sweep[R]) Err() error {
	var errs []error
	for _, r := range s.Rows {
		if kind, bytes, wrong := r.result(); wrong > 0 {
			errs = append(errs, fmt.Errorf("%s of %d bytes: %d elements are wrong", kind, bytes, wrong))
		}
	}
	return errors.Join(errs...)
}
