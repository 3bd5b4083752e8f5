package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/world"
)

// A Fault is something that goes wrong at a time, and ends after another.
type Fault struct {
	At      time.Duration // since the beginning. What goes wrong at 0 does so before the job starts
	Traffic bool          // At counts from when all connections carry messages
	For     time.Duration // 0: for good
	Until   bool          // For counts from when all connections carry messages, and is not 0
	Cable   int           // number of the cable; -1: it happens to the machine
	Machine string        // the machine, or the end of the cable; "" where it happens to the whole cable
	Kind    string        // name in the table of kinds
	Amount  int64         // in the unit of the kind; 0 where the kind has none
}

// target is what a kind of fault happens to.
type target int

const (
	wholeCable target = iota
	cableEnd
	adapterEnd // an end of a cable with RDMA
	wholeMachine
)

// A kind is a kind of fault. set lets a fault begin, with on, and end.
type kind struct {
	name   string
	target target
	amount amount
	set    func(h *hit, on bool)
}

// amount is how bad a fault of a kind is: the unit, nil without, and how a number from 0 to 1 becomes an amount.
type amount struct {
	unit *unit
	draw func(bad float64) float64
}

// A hit is a fault of a world: what it happens to.
type hit struct {
	*Fault
	*Cable  // nil where it happens to a machine
	w       *World
	end     int // of the cable
	machine *Machine
}

// amount returns the amount of the fault when it begins, and 0 when it ends.
func (h *hit) amount(on bool) int64 {
	if on {
		return h.Amount
	}
	return 0
}

// delay is amount as a duration.
func (h *hit) delay(on bool) time.Duration { return time.Duration(h.amount(on)) }

// adapter returns the RDMA adapter of the end.
func (h *hit) adapter() *world.Adapter { return h.Adapters[h.end] }

// kinds are what can go wrong. [Scenario.Plan] draws those of cables, all but the slow verbs.
var kinds = append([]kind{
	{"cut", wholeCable, none, func(h *hit, on bool) { h.Cut(on) }},
	{"port off", cableEnd, none, func(h *hit, on bool) { h.Off(h.end, true, on) }},
	{"interface down", cableEnd, none, func(h *hit, on bool) { h.Off(h.end, false, on) }},
	{"RDMA off", adapterEnd, none, func(h *hit, on bool) { h.OffRDMA(h.end, on) }},
	{"dead one way", cableEnd, none, func(h *hit, on bool) { h.Lose(h.end, share(on)) }},
	{"dead with a carrier", wholeCable, none, func(h *hit, on bool) { h.Lose(0, share(on)); h.Lose(1, share(on)) }},
	{"loss", wholeCable, amount{shares, func(bad float64) float64 { return bad * bad * 0.5e6 }}, func(h *hit, on bool) {
		h.Lose(0, float64(h.amount(on))/1e6)
		h.Lose(1, float64(h.amount(on))/1e6)
	}},
	{"slow", cableEnd, amount{rates, func(bad float64) float64 { return 1e6 + bad*1e8 }}, func(h *hit, on bool) { h.Slow(h.end, h.amount(on)) }},
	{"late", cableEnd, upTo(300 * time.Millisecond), func(h *hit, on bool) { h.Delay(h.end, h.delay(on)) }},
	{"streams reset", wholeCable, none, func(h *hit, on bool) {
		if on {
			h.w.reset(h.Cable)
		}
	}},
	{"acknowledgements lost", adapterEnd, amount{counts, func(bad float64) float64 { return 1 + bad*40 }}, func(h *hit, on bool) {
		if on {
			h.adapter().LoseAcks(int(h.Amount))
		}
	}},
	{"completions late", adapterEnd, upTo(50 * time.Millisecond), func(h *hit, on bool) { h.adapter().Device.Late(h.delay(on)) }},
	// One queue pair fails when the fault begins, and one when it ends. The amount chooses it.
	{"queue pairs fail", adapterEnd, amount{counts, func(bad float64) float64 { return bad * 1e4 }}, func(h *hit, _ bool) { h.w.fail(h.adapter(), int(h.Amount)) }},
	{"registration slow", adapterEnd, upTo(200 * time.Millisecond), func(h *hit, on bool) { h.adapter().Device.Slow("reg_mr", h.delay(on)) }},
	// The cable is cut and joined at intervals of the amount, more often where that is long, and ends by itself.
	{"flapping", wholeCable, upTo(200 * time.Millisecond), func(h *hit, on bool) {
		for k := range 2 * (1 + int(h.delay(on)/(50*time.Millisecond))) { // the last gives the carrier back
			if on {
				h.w.Clock.After(time.Duration(k)*(2*time.Millisecond+h.delay(on)), fmt.Sprintf("flap of cable %d", h.Number), func() { h.Cut(k%2 == 0) })
			}
		}
	}},
	{"late", wholeMachine, upTo(20 * time.Millisecond), func(h *hit, on bool) { h.machine.Delay(h.delay(on)) }},
	// Processes can be stopped from the beginning of the job on. The amount counts calls of the system and of adapters, from when the
	// fault begins: each process is stopped at that call, for as long as the fault lasts.
	{"stopped at call", wholeMachine, amount{counts, func(bad float64) float64 { return 1 + bad*30 }}, func(h *hit, on bool) {
		if on {
			for _, p := range h.machine.processes {
				p.HaltAt(int(h.Amount), h.For)
			}
		}
	}},
	{"stopped", wholeMachine, none, func(h *hit, on bool) {
		for _, p := range h.machine.processes {
			p.Halt(on)
		}
	}},
	{killed, wholeMachine, none, func(h *hit, on bool) {
		for _, p := range h.machine.processes {
			p.Kill()
		}
	}},
	{unpowered, wholeMachine, none, func(h *hit, on bool) { h.machine.PowerOff() }},
}, slowVerbs()...)

// Verbs are those that enter the kernel, which may take long there.
var Verbs = []string{
	"query_device", "query_port", "alloc_pd", "dealloc_pd", "reg_mr", "dereg_mr", "create_comp_channel", "destroy_comp_channel",
	"create_cq", "destroy_cq", "create_qp", "modify_qp", "query_qp", "destroy_qp",
}

// slowVerbs returns a kind for each verb, by which it takes the amount. [Scenario.Plan] does not draw them.
func slowVerbs() (all []kind) {
	for _, verb := range Verbs {
		all = append(all, kind{"verb " + verb + " slow", adapterEnd, amount{unit: delays}, func(h *hit, on bool) {
			h.adapter().Device.Slow(verb, h.delay(on))
		}})
	}
	return all
}

// The kinds after which a machine's processes are dead. They do not end.
const (
	killed    = "killed"
	unpowered = "loses power"
)

var none amount

// of returns the amount that a number from 0 to 1 stands for, rounded such that its text is short.
func (a amount) of(bad float64) int64 {
	if a.unit == nil {
		return 0
	}
	n := max(int64(a.draw(bad)), a.unit.low)
	if a.unit == delays || a.unit == rates {
		n -= n % 1000
	}
	return n
}

// ended reports whether a fault of the kind happens to one end of a cable.
func (k *kind) ended() bool { return k.target == cableEnd || k.target == adapterEnd }

// upTo is the amount of a kind that delays something.
func upTo(most time.Duration) amount {
	return amount{delays, func(bad float64) float64 { return bad * float64(most) }}
}

// share is the share that is lost of what is to vanish altogether.
func share(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// find returns the kind of a fault, or nil.
func (f *Fault) find() *kind {
	for k := range kinds {
		if kinds[k].name == f.Kind && (kinds[k].target == wholeMachine) == (f.Cable < 0) {
			return &kinds[k]
		}
	}
	return nil
}

// half is one of the two ends.
func half(bad float64) int { return int(bad*20) % 2 }

// Plan draws faults of the scenario's cables: so many, that begin within a time and last up to longest each. About half of the
// kinds are left out, because rare pairs meet only where the others keep away.
func (s *Scenario) Plan(n int, within, longest time.Duration) (all []Fault) {
	d := draw.New(s.Seed).Stream("plan")
	var drawn, used []*kind
	tcp := slices.ContainsFunc(s.Cables, func(c Wire) bool { return !c.RDMA })
	for k := range kinds {
		if kinds[k].target != wholeMachine && (kinds[k].target != adapterEnd || !tcp) && (kinds[k].amount.unit == nil || kinds[k].amount.draw != nil) {
			drawn = append(drawn, &kinds[k])
		}
	}
	for _, k := range drawn {
		if d.Chance(0.5) {
			used = append(used, k)
		}
	}
	if len(used) == 0 {
		used = drawn[d.Uint64N(uint64(len(drawn))):][:1]
	}
	for range n {
		k := used[d.Uint64N(uint64(len(used)))]
		c := s.Cables[d.Uint64N(uint64(len(s.Cables)))]
		f := Fault{Cable: c.Number, Kind: k.name}
		f.At = d.Between(0, within).Round(time.Microsecond)
		f.For = time.Duration(d.LogUniform(1000, int(longest.Microseconds()))) * time.Microsecond
		bad := d.Float64()
		if k.ended() {
			f.Machine = []string{c.From, c.To}[half(bad)]
		}
		f.Amount = k.amount.of(bad)
		all = append(all, f)
	}
	return all
}

// strike lets the faults of a scenario happen that count from now: those of the traffic, or the others.
func (w *World) strike(s *Scenario, traffic bool) {
	for k := range s.Faults {
		f := &s.Faults[k]
		h := &hit{Fault: f, w: w}
		if f.Cable >= 0 {
			h.Cable = w.cables[f.Cable]
			if f.Machine == h.Machines[1].Name() {
				h.end = 1
			}
		} else {
			h.machine = w.machine(f.Machine)
		}
		set := f.find().set
		begin := func() { w.note(f.what() + " begins"); w.observe(h); set(h, true) }
		end := func() { w.note(f.what() + " ends"); set(h, false) }
		if f.Traffic == traffic {
			if f.At == 0 && !traffic {
				begin()
			} else {
				w.Clock.After(f.At, "begin: "+f.what(), begin)
			}
			w.last = max(w.last, w.Bus.Now()+f.At)
		}
		if f.For > 0 && traffic == (f.Traffic || f.Until) {
			after := f.For
			if !f.Until {
				after += f.At
			}
			w.Clock.After(after, "end: "+f.what(), end)
			w.last = max(w.last, w.Bus.Now()+after)
		}
	}
}

// reset resets the streams that lead over a cable.
func (w *World) reset(c *Cable) {
	own, other := c.Ends[0].Prefixes(), c.Ends[1].Prefixes()
	w.Net.Reset(func(a, b netip.AddrPort) bool { return on(own, a) && on(other, b) || on(own, b) && on(other, a) })
}

// fail breaks a queue pair of an adapter, if there is one.
func (w *World) fail(a *world.Adapter, which int) {
	if all := a.Device.QueuePairs(); len(all) > 0 {
		w.Fabric.Break(all[which%len(all)])
	}
}

// on reports whether an address is one of an interface's.
func on(prefixes []netip.Prefix, a netip.AddrPort) bool {
	for _, p := range prefixes {
		if p.Addr() == a.Addr().WithZone("") {
			return true
		}
	}
	return false
}
