package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/mesh"
)

// Two machines send each other messages without a pause over cables that differ in all that cables can differ in, each
// direction by itself, and queue pairs fail again and again. What goes over one cable is overtaken by what goes over another,
// so that the parts, grants and reports of many outages meet.
func TestSkewedCables(t *testing.T) {
	skewed(t, func(k *skew) {
		k.Ring(2, 2+int(k.d.Uint64N(4)), true)
		k.faults = 1 + int(k.d.Uint64N(40))
		k.early = k.d.Chance(0.3)
		k.Expect.Grants = true
	}, func(k *skew) {
		c := k.traffic()
		if k.d.Chance(0.3) {
			k.Connect(0, 1, c)
		} else {
			k.ConnectAll(c)
		}
	})
}

// So do the ends of a row of three, through circuits of the machine in the middle.
func TestSkewedRelays(t *testing.T) {
	skewed(t, func(k *skew) {
		k.Row(3, 0, true)
		for m := range 2 {
			k.Wires(m, m+1, 1+int(k.d.Uint64N(2)), true)
		}
		k.faults = int(k.d.Uint64N(30))
		k.early = k.d.Chance(0.3)
		if k.d.Chance(0.3) { // to make a circuit takes longer than its ends wait
			for _, c := range k.Cables {
				for _, m := range []string{c.From, c.To} {
					f := mesh.Fault{Cable: c.Number, Machine: m, Kind: "registration slow", Amount: int64(k.d.LogUniform(1, 300)) * 1_000_000}
					k.Faults = append(k.Faults, f)
				}
			}
		}
		if k.d.Chance(0.4) {
			k.cut()
		}
	}, func(k *skew) {
		c := k.traffic()
		if k.d.Chance(0.5) { // connections that end soon, one after the other
			for range 1 + k.d.Uint64N(12) {
				c.Messages = 1 + int(k.d.Uint64N(20))
				k.Connect(0, 2, c)
			}
			return
		}
		c.Messages = c.Messages/4 + 1
		k.Connect(0, 2, c)
		if k.d.Chance(0.5) {
			k.Connect(2, 0, c)
		}
		if k.d.Chance(0.3) {
			k.Connect(0, 1, c)
		}
	})
}

// RDMA goes from the cables between two machines while messages flow, and returns, over and over, while other cables lead there
// through a third machine.
func TestDetours(t *testing.T) {
	skewed(t, func(k *skew) {
		k.Ring(3, 1+int(k.d.Uint64N(2)), true)
		k.faults = int(k.d.Uint64N(8))
		direct := k.Cables[:len(k.Cables)/3]
		at, pace := time.Duration(0), time.Duration(k.d.LogUniform(500, 6000))*time.Millisecond
		for range 1 + k.d.Uint64N(6) {
			for _, c := range direct {
				f := k.at(c, "RDMA off")
				f.Traffic = true
				f.At = at + k.between(0, pace/4)
				f.For = at + k.between(pace, 2*pace) - f.At
				k.Faults = append(k.Faults, f)
			}
			at += k.between(2*pace, 4*pace)
		}
	}, func(k *skew) {
		c := k.traffic()
		c.Pauses = 5 * int(k.d.Uint64N(8)) // so that there are messages for as long as RDMA comes and goes
		k.Connect(0, 1, c)
		if k.d.Chance(0.5) {
			k.Connect(1, 0, c)
		}
	})
}

// Ports without a carrier when the connections are set up get it while messages flow, or when they have just ended.
func TestLatePorts(t *testing.T) {
	skewed(t, func(k *skew) {
		k.Ring(2, 2+int(k.d.Uint64N(2)), true)
		transport := []string{"auto", "rdma"}[k.d.Uint64N(2)]
		k.Settings = waiting(transport)
		k.faults = int(k.d.Uint64N(8))
		k.Expect.Grants = true
		late := k.Cables
		if transport == "rdma" {
			late = late[1:]
		}
		for _, c := range late {
			if !k.d.Chance(0.7) {
				continue
			}
			if k.d.Chance(0.6) {
				f := mesh.Fault{Cable: c.Number, Machine: c.From, Kind: "registration slow", Amount: int64(k.d.LogUniform(10, 100_000)) * 1000}
				k.Faults = append(k.Faults, f)
			}
			f := k.at(c, "RDMA off")
			if k.d.Chance(0.5) {
				f.Kind = "port off"
			}
			f.Until, f.For = true, time.Duration(k.d.LogUniform(10, 400_000))*time.Microsecond
			k.Faults = append(k.Faults, f)
		}
	}, func(k *skew) {
		c := k.traffic()
		c.Messages = c.Messages/2 + 1
		k.ConnectAll(c)
	})
}

// A skew is what such tests draw.
type skew struct {
	*mesh.Scenario
	d      *draw.Stream
	faults int  // queue pairs that fail
	early  bool // also while connections are set up
}

// between draws a time, in microseconds.
func (k *skew) between(low, high time.Duration) time.Duration {
	return k.d.Between(low, high).Round(time.Microsecond)
}

// at returns a fault at an end of a cable that is drawn.
func (k *skew) at(c mesh.Wire, kind string) mesh.Fault {
	return mesh.Fault{Cable: c.Number, Machine: []string{c.From, c.To}[k.d.Uint64N(2)], Kind: kind}
}

// traffic draws how many messages a connection carries, and how large they are at most.
func (k *skew) traffic() mesh.Connection {
	c := mesh.Traffic(0, 0)
	c.Pauses = int(k.d.Uint64N(3))
	switch k.d.Uint64N(6) {
	case 0, 1: // in several parts
		c.Messages, c.Largest = 50+int(k.d.Uint64N(600)), 1<<(16+k.d.Uint64N(5))
	case 5: // the same, and as many receives as there can be: more parts are under way than may be sent again at once
		c.Window, c.Group = 256, 1
		c.Messages, c.Largest = 300+int(k.d.Uint64N(300)), 1<<(17+k.d.Uint64N(3))
	case 2:
		c.Messages, c.Largest = 500+int(k.d.Uint64N(2000)), 1<<(4+k.d.Uint64N(14))
	default:
		c.Window, c.Group = 256, 1+int(k.d.Uint64N(2)) // as many receives as there can be: the ring of grants is full
		c.Messages, c.Largest = 500+int(k.d.Uint64N(3500)), 1<<(4+k.d.Uint64N(10))
	}
	return c
}

// fail has queue pairs of a cable fail at a time, after some have lost acknowledgements at times.
func (k *skew) fail(c mesh.Wire, at time.Duration) {
	f := k.at(c, "queue pairs fail")
	acks, which := k.d.Chance(0.3), k.d.Uint64()
	f.At, f.Amount, f.Traffic = at, int64(which%10_000), !k.early
	if k.early {
		f.At += 50 * time.Millisecond // a connection is set up then
	}
	if acks {
		l := f
		l.Kind, l.Amount = "acknowledgements lost", 1+int64(which%20)
		k.Faults = append(k.Faults, l)
	}
	k.Faults = append(k.Faults, f)
}

// cut takes the carrier from cables, and gives it back, a few times while messages flow.
func (k *skew) cut() {
	at, pace := time.Duration(0), time.Duration(k.d.LogUniform(1000, 2_000_000))*time.Microsecond
	for range 1 + k.d.Uint64N(5) {
		c := k.Cables[k.d.Uint64N(uint64(len(k.Cables)))]
		at += k.between(0, pace)
		f := mesh.Fault{At: at, Traffic: true, For: k.between(pace/2, 2*pace), Cable: c.Number, Kind: "cut"}
		at += f.For
		k.Faults = append(k.Faults, f)
	}
}

// skewed draws cables, work and faults for each seed, and plays them.
func skewed(t *testing.T, shape, work func(*skew)) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		s.Settings, s.Expect.Within = waiting("rdma"), 5*time.Minute
		k := &skew{Scenario: s, d: d}
		shape(k)
		always := func(c mesh.Wire, end int, kind string, chance float64, low, high int, times int64) {
			if d.Chance(chance) {
				f := mesh.Fault{Cable: c.Number, Machine: []string{c.From, c.To}[end], Kind: kind, Amount: int64(d.LogUniform(low, high)) * times}
				s.Faults = append(s.Faults, f)
			}
		}
		for _, c := range s.Cables {
			for end := range 2 {
				always(c, end, "late", 0.5, 1, 5000, 1000)
				always(c, end, "slow", 0.5, 5, 12_500, 1_000_000)
				always(c, end, "completions late", 0.3, 1, 3000, 1000)
			}
		}
		for _, m := range s.Machines {
			if d.Chance(0.5) {
				s.Faults = append(s.Faults, mesh.Fault{Cable: -1, Machine: m, Kind: "late", Amount: int64(d.LogUniform(1, 5000)) * 1000})
			}
		}
		work(k)
		at, pace := time.Duration(0), time.Duration(d.LogUniform(100, 30_000))*time.Microsecond
		burst := d.Chance(0.3) // queue pairs of all cables but one fail together
		for range k.faults {
			one := d.Uint64N(uint64(len(s.Cables)))
			at += k.between(0, 2*pace)
			if !burst {
				k.fail(s.Cables[one], at)
				continue
			}
			for i, c := range s.Cables {
				if i != int(one) {
					k.fail(c, at+k.between(0, pace/20))
				}
			}
		}
		heal(s, d.Chance(0.3))
		return s
	})
}
