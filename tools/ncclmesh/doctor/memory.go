package doctor

import (
	"fmt"
	"syscall"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// size is a number of bytes for people.
func size(n uint64) string {
	if n < 10<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return fmt.Sprintf("%.4g %s", f, units[i])
}

// ample is a limit of locked memory under which a few bytes are no matter of the limit.
const ample = 1 << 20

// locked returns how much memory the judged process may lock: a process that is exempt from its limit has none.
func locked(n *facts.Node) (facts.Limit, bool) {
	limit, ok := n.Process.Locked.Get()
	if exempt, _ := n.Process.Exempt.Get(); exempt {
		return facts.Limit{Unlimited: true}, true
	}
	return limit, ok
}

// limited reports whether a limit may be why a registration failed.
func limited(l facts.Limit, t facts.Try) bool {
	return !l.Unlimited && (l.Most < ample || uint64(t.Bytes) > l.Most)
}

// refused is the registration of a device that failed, the smaller one first.
func refused(a *facts.Adapter) (facts.Try, bool) {
	for _, t := range []facts.Try{a.Small, a.Large} {
		if t.Failed() {
			return t, true
		}
	}
	return facts.Try{}, false
}

func memlock(n *facts.Node, v *verdict) {
	if _, ok := rdmaPorts(n, v); !ok || len(n.Adapters) == 0 {
		return
	}
	const remedy = "start a container with --ulimit memlock=-1; elsewhere set memlock to unlimited in /etc/security/limits.d, and log in again"
	limit, ok := locked(n)
	if !ok {
		v.unknown(on(n), n.Process.Locked.Because())
		return
	}
	if n.Process.PID != 0 && !limit.Unlimited {
		v.warn(on(n), remedy, "process %d may lock %s of memory", n.Process.PID, size(limit.Most))
		return
	}
	for i := range n.Adapters {
		a := &n.Adapters[i]
		t, failed := refused(a)
		switch {
		case failed && limited(limit, t):
			v.fail(on(n), remedy, "%s: registering %s failed (%s); %s may be locked", a.Device, size(uint64(t.Bytes)), t.Error, size(limit.Most))
			return // the others are no better
		case !failed && !a.Large.Done && !limit.Unlimited:
			v.unknown(on(n, portsOf(n, a.Device)...), "registering memory was not tried: "+a.Large.Why)
		}
	}
}

func regmrENOMEM(n *facts.Node, v *verdict) {
	if _, ok := rdmaPorts(n, v); !ok {
		return
	}
	limit, known := locked(n)
	for i := range n.Adapters {
		a := &n.Adapters[i]
		t, failed := refused(a)
		switch {
		case !failed && !a.Small.Done:
			v.unknown(on(n, portsOf(n, a.Device)...), "registering memory was not tried: "+a.Small.Why)
		case failed && !known:
			v.unknown(on(n), fmt.Sprintf("%s: registering %s failed (%s), and the limit of locked memory is not known: %s", a.Device, size(uint64(t.Bytes)), t.Error, n.Process.Locked.Because()))
			return
		case failed && !limited(limit, t):
			kernel, _ := n.Kernel.Get()
			remedy := "read the kernel's log: journalctl -k"
			if t.Errno == int(syscall.ENOMEM) {
				remedy = "boot another kernel (6.17 was seen to work), or this one with kho=off"
			}
			v.fail(on(n), remedy, "%s: registering %s failed (%s), although it may be locked; kernel %s, CmaTotal %s", a.Device, size(uint64(t.Bytes)), t.Error, kernel, cma(n))
			return
		}
	}
}

// cma is the memory for contiguous allocations, which the kernels that were seen to fail lack.
func cma(n *facts.Node) string {
	if bytes, ok := n.Memory.CMA.Get(); ok {
		return size(bytes)
	}
	return "unknown"
}

// usualTest is what an all-reduce of 1 GiB takes: all_reduce_perf -e 1G has two buffers.
const usualTest = 2 << 30

func memLow(n *facts.Node, v *verdict) {
	available, ok := n.Memory.Available.Get()
	if !ok {
		v.unknown(on(n), n.Memory.Available.Because())
		return
	}
	need, what := int64(usualTest), "a test of 1 GiB, send and receive buffer,"
	if plan, ok := v.Plan.Get(); ok {
		need, what = plan, "this test"
	}
	if available < uint64(need) {
		v.warn(on(n), "use a smaller size, or end the programs that hold the memory", "%s of memory are available; %s takes %s", size(available), what, size(uint64(need)))
	}
}
