package ibv

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Library is a loaded libibverbs. It is never unloaded.
type Library struct {
	name  string
	fn    symbols
	sysfs string
}

// A LoadError says why libibverbs cannot be used.
type LoadError struct {
	Names   []string // the file names tried
	Missing []string // required symbols that the library lacks, as name@version; empty if no library could be opened
	Err     error    // what the dynamic linker said
}

const installHint = "install package libibverbs1 (Debian, Ubuntu, SUSE) or libibverbs (RHEL, Fedora)"

func (e *LoadError) Error() string {
	if len(e.Missing) > 0 {
		return fmt.Sprintf("ibv: %s lacks the required symbols %s: it is too old, or no libibverbs; %s",
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
		l := &Library{name: name, sysfs: "/sys"}
		if missing := l.fn.resolve(handle); len(missing) > 0 {
			return nil, &LoadError{Names: []string{name}, Missing: missing}
		}
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
func (l *Library) Name() string { return l.name }

// UseSysfs sets the directory that stands for /sys where the library itself cannot answer.
func (l *Library) UseSysfs(root string) { l.sysfs = root }

// ForkInit makes it safe for the process to fork while memory is registered. It has to come before any registration.
func (l *Library) ForkInit() error {
	if l.fn.forkInit == 0 {
		return l.lacks("fork_init", "", "ibv_fork_init@IBVERBS_1.1")
	}
	return newError("fork_init", "", 0, l.forkInit(), "")
}

// lacks is the error of a verb whose symbol is missing.
func (l *Library) lacks(op, device, symbol string) error {
	return &Error{Op: op, Device: device, Errno: syscall.EOPNOTSUPP,
		Detail: fmt.Sprintf("%s has no %s; a newer rdma-core has", l.name, symbol)}
}

// Devices lists the RDMA devices. A machine without any, or without RDMA in its kernel, has an empty list.
func (l *Library) Devices() ([]*Device, error) {
	var devices []*Device
	err := l.eachDevice(func(ptr uintptr) bool {
		c := at[cDevice](ptr)
		devices = append(devices, &Device{
			lib:       l,
			name:      l.deviceName(ptr),
			guid:      l.deviceGUID(ptr),
			nodeType:  int32(c.nodeType),
			transport: int32(c.transportType),
		})
		return true
	})
	return devices, err
}

// eachDevice calls f with each device's address, valid during the call only, until f returns false.
func (l *Library) eachDevice(f func(ptr uintptr) bool) error {
	list, n, errno := l.getDeviceList()
	if list == 0 {
		if errno == syscall.ENOSYS {
			errno = 0
		}
		return newError("get_device_list", "", 0, errno, "")
	}
	defer l.freeDeviceList(list)
	for i := range n {
		if !f(*at[uintptr](list + uintptr(i)*8)) {
			break
		}
	}
	return nil
}
