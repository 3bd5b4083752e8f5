package guard

import (
	"fmt"
	"runtime/debug"
)

// A Panic is an error that was a panic.
type Panic struct {
	Value any
	Stack []byte // of the goroutine, where it panicked
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Report is what to log of it, once.
func (p *Panic) Report() string {
	return fmt.Sprintf("%v; please report this with the lines that follow\n%s", p, p.Stack)
}

// Do calls f. If f panics, the error is a *Panic.
func Do(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v, debug.Stack()}
		}
	}()
	return f()
}

// Run calls f, and caught if f panics. It is what a goroutine begins with.
func Run(f func(), caught func(*Panic)) {
	if err := Do(func() error { f(); return nil }); err != nil {
		caught(err.(*Panic))
	}
}
