package ibv

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Library is a loaded libibverbs, which is never unloaded, or another [Driver].
type Library struct {
	driver Driver
}

// Use returns a library of another driver than libibverbs.
func Use(d Driver) *Library { return &Library{driver: d} }

// A LoadError says why libibverbs cannot be used.
type LoadError struct {
	Names   []string // the file names tried
	Missing []string // required symbols that the library lacks, as name@version; empty if no library could be opened
	Err     error    // what the dynamic linker said
}

const installHint = "install package libibverbs1 (Debian, Ubuntu, SUSE) or libibverbs (RHEL, Fedora)"

func (e *LoadError) Error() string {
	if len(e.Missing) > 0 {
		return fmt.Sprintf("ibv: %s does not have the required symbols %s: it is too old, or not libibverbs; %s",
			strings.Join(e.Names, ", "), strings.Join(e.Missing, ", "), installHint)
	}
	return fmt.Sprintf("ibv: cannot load %s: %v; %s", strings.Join(e.Names, " or "), e.Err, installHint)
}

func (e *LoadError) Unwrap() error { return e.Err }

var (
	defaultNames = []string{"libibverbs.so.1", "libibverbs.so"}

	loadMu sync.Mutex
	loaded = map[string]*Library{} // by the names asked for

	// current is the library asked for last; the texts of statuses are its.
	current atomic.Pointer[Library]
)

// Load opens the first of the named libraries that the dynamic linker finds, by default libibverbs.so.1, then
// libibverbs.so. The same names give the same Library. Failure is a *LoadError.
func Load(names ...string) (*Library, error) {
	if len(names) == 0 {
		names = defaultNames
	}
	key := strings.Join(names, "\x00")
	loadMu.Lock()
	defer loadMu.Unlock()
	if l, ok := loaded[key]; ok {
		current.Store(l)
		return l, nil
	}
	var errs []error
	for _, name := range names {
		handle, err := dlopen(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		d := &libibverbs{name: name}
		if missing := d.fn.resolve(handle); len(missing) > 0 {
			return nil, &LoadError{Names: []string{name}, Missing: missing}
		}
		l := Use(d)
		loaded[key] = l
		current.Store(l)
		return l, nil
	}
	return nil, &LoadError{Names: names, Err: errors.Join(errs...)}
}

// resolve fills in the addresses and returns the required symbols that were not found.
func (s *symbols) resolve(handle uintptr) (missing []string) {
	for _, sym := range s.table() {
		*sym.addr = lookup(handle, sym.name, sym.version)
		if *sym.addr == 0 && sym.required {
			missing = append(missing, sym.name+"@"+sym.version)
		}
	}
	return missing
}

// Name is the file name under which the library was found.
func (l *Library) Name() string { return l.driver.Name() }

// ForkInit makes it safe for the process to fork while memory is registered. It has to come before any registration.
func (l *Library) ForkInit() error {
	if err := l.lacks("fork_init", ""); err != nil {
		return err
	}
	return newError("fork_init", "", 0, l.driver.ForkInit(), "")
}

// lacks is the error of an optional verb that is missing, nil where it is there.
func (l *Library) lacks(op, device string) error {
	symbol := l.driver.Missing(op)
	if symbol == "" {
		return nil
	}
	return &Error{Op: op, Device: device, Errno: syscall.EOPNOTSUPP,
		Detail: fmt.Sprintf("%s has no %s; a newer rdma-core has", l.Name(), symbol)}
}

// Devices lists the RDMA devices. A machine without any, or without RDMA in its kernel, has an empty list.
func (l *Library) Devices() ([]*Device, error) {
	infos, err := l.driver.Devices()
	var devices []*Device
	for _, info := range infos {
		devices = append(devices, &Device{lib: l, info: info})
	}
	return devices, err
}

// NewWaiter returns what a thread waits with for completion events of the library's devices.
func (l *Library) NewWaiter() (Waiter, error) { return l.driver.NewWaiter() }
