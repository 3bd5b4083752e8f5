package fault

import (
	"fmt"
	"log/slog"

	"ncclmesh/guard"
)

// Guarded calls f. A panic in it is logged with its stack and becomes an error of
// kind ErrInternal, for what f serves to fail with.
func Guarded(log *slog.Logger, what string, f func() error) error {
	err := guard.Do(f)
	if p, ok := err.(*guard.Panic); ok {
		Panicked(log, what, p)
		return fmt.Errorf("%w: %s: %w", ErrInternal, what, p)
	}
	return err
}

// Panicked logs a panic.
func Panicked(log *slog.Logger, what string, p *guard.Panic) {
	log.Error(fmt.Sprintf("%s: %s", what, p.Report()))
}
