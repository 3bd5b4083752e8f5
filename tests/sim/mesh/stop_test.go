package mesh_test

import (
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
	"ncclmesh/tests/sim/world"
)

// stopped is a fault by which the processes of a machine are stopped.
func stopped(machine string, at, d time.Duration) mesh.Fault {
	return mesh.Fault{Cable: -1, Machine: machine, Kind: "stopped", At: at, For: d}
}

// A process is stopped for a while, as by a debugger, also when it relays, and also while cables fail: no rank fails, and
// all lanes come back.
func TestProcessIsStopped(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := []string{"tcp", "auto", "rdma"}[d.Uint64N(3)]
		s.Settings = waiting(transport)
		s.Ring(2+int(d.Uint64N(4)), 1+int(d.Uint64N(2)), transport != "tcp")
		if d.Chance(0.5) {
			s.Faults = s.Plan(1+int(d.Uint64N(4)), 1500*time.Millisecond, 3*time.Second)
		}
		c := mesh.Traffic(10+int(d.Uint64N(200)), 1<<d.Uint64N(22))
		if d.Chance(0.5) {
			s.ConnectRing(c)
		} else {
			c.Messages = c.Messages/4 + 1
			s.ConnectAll(c)
		}
		for range 1 + int(d.Uint64N(3)) {
			at := d.Between(50*time.Millisecond, 1500*time.Millisecond).Round(time.Microsecond)
			s.Faults = append(s.Faults, stopped(s.Machines[d.Uint64N(uint64(len(s.Machines)))], at, time.Duration(d.LogUniform(100, 60_000))*time.Millisecond))
		}
		heal(s, true)
		return s
	})
}

// A process is stopped for seconds while connections are set up, or later, and nothing else goes wrong. Its peers wait for it: no lane
// is lost, and nobody is warned.
func TestStoppedIsWaitedFor(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, d := mesh.NewScenario(seed)
		transport := []string{"tcp", "rdma"}[d.Uint64N(2)]
		s.Settings = waiting(transport)
		s.Ring(2, 2+int(d.Uint64N(3)), transport == "rdma")
		s.ConnectAll(mesh.Traffic(10+int(d.Uint64N(100)), 1<<d.Uint64N(20)))
		for _, c := range s.Cables { // what goes over one is overtaken by what goes over another: there is a time between the lanes of a set-up
			for _, m := range s.Machines {
				if d.Chance(0.7) {
					s.Faults = append(s.Faults, mesh.Fault{Cable: c.Number, Machine: m, Kind: "late", Amount: int64(d.LogUniform(100, 100_000)) * 1000})
				}
			}
		}
		at := time.Duration(d.LogUniform(1000, 600_000)) * time.Microsecond
		f := stopped(s.Machines[d.Uint64N(2)], at, time.Duration(d.LogUniform(200, 4000))*time.Millisecond)
		if d.Chance(0.7) { // between two calls, most of all of a set-up
			f.Kind, f.Amount = "stopped at call", int64(d.LogUniform(1, 60))
			f.At = d.Between(40*time.Millisecond, 300*time.Millisecond).Round(time.Microsecond)
		}
		s.Faults = append(s.Faults, f)
		s.Expect.Calm, s.Expect.Within = true, time.Minute
		return s
	})
}

// A process is stopped for three seconds at a call of a set-up, and nothing else goes wrong. The seed says at which: seeds that follow one
// another take all calls of both ends. Its peer waits for it.
func TestStoppedAtEachCall(t *testing.T) {
	each(t, func(seed uint64) *mesh.Scenario {
		s, _ := mesh.NewScenario(seed)
		s.Settings = waiting("rdma")
		s.Ring(2, 3, true)
		s.ConnectAll(mesh.Traffic(20, 1<<12))
		f := stopped(s.Machines[seed%2], time.Millisecond, 3*time.Second)
		f.Kind, f.Amount = "stopped at call", 1+int64(seed/2%200) // the set-up is over before the 200th
		s.Faults = append(s.Faults, f)
		s.Expect.Calm, s.Expect.Within = true, time.Minute
		return s
	})
}

// While a process is stopped it does nothing at all, and its timers that are due then fire when it goes on.
func TestStoppedProcessRests(t *testing.T) {
	drawsNone(t)
	for _, transport := range []string{"tcp", "rdma"} {
		t.Run(transport, func(t *testing.T) {
			bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
				w := mesh.NewWorld(t, b)
				a, o, speed := w.AddMachine("na"), w.AddMachine("nb"), world.Speed{Rate: 12_500_000_000, Latency: 2 * time.Microsecond}
				cable := w.Cable(0, speed, transport != "tcp", a, o)
				w.Cable(1, speed, transport != "tcp", a, o)
				w.Management()
				j := w.NewJob(waiting(transport), a, o)
				c := mesh.Traffic(200, 1<<20)
				c.From, c.To = "na", "nb"
				j.Connect(c)
				c.From, c.To = "nb", "na"
				j.Connect(c)
				r := j.Ranks()[0]
				var before, after string
				w.Clock.After(300*time.Millisecond, "stop", func() { r.Stop(20 * time.Second); before = r.State() })
				w.Clock.After(2*time.Second, "cut", func() { cable.Cut(true) })
				w.Clock.After(5*time.Second, "repair", func() { cable.Cut(false) })
				w.Clock.After(20*time.Second, "look", func() { after = r.State() })
				j.Play(5 * time.Minute)
				for _, r := range j.Ranks() {
					for _, f := range r.Broken() {
						t.Errorf("%v: %v", f.Flow, f.Err)
					}
				}
				j.End()
				if before != after || before == "" {
					t.Errorf("it was stopped with\n%s\nand at the end of that it had\n%s", before, after)
				}
			})
		})
	}
}
