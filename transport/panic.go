package transport

import (
	"fmt"

	"ncclmesh/guard"
)

// guarded calls f. A panic in it is logged with its stack and becomes an error,
// for what f serves to fail with.
func (t *Transport) guarded(what string, f func() error) error {
	err := guard.Do(f)
	if p, ok := err.(*guard.Panic); ok {
		t.panicked(what, p)
		return fmt.Errorf("%w: %s: %w", ErrInternal, what, p)
	}
	return err
}

// caught logs a panic that nothing but a log line can come of.
func (t *Transport) caught(p *guard.Panic) { t.panicked("in the background", p) }

// panicked logs a panic.
func (t *Transport) panicked(what string, p *guard.Panic) {
	t.log.Error(fmt.Sprintf("%s: %s", what, p.Report()))
}

// Fail ends the connection over an error that its owner met in a call of it.
func (c *conn) Fail(err error) { c.fail(err) }
