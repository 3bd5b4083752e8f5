package mesh

import (
	"iter"
	"time"
)

// moments are when a fault of [Encounters] begins, and what it then meets: sessions and lanes that are set up or in service, a
// lane that a cut cable has taken out of service, one that is gone since, and a session whose stream was reset.
var moments = []struct {
	name    string
	traffic bool
	at      time.Duration
}{
	{"set-up", false, started + 20*time.Millisecond},
	{"service", true, 50 * time.Millisecond},
	{"gone", true, 1700 * time.Millisecond},
	{"leaving", true, 4*time.Second + 8*time.Millisecond},
	{"broken session", true, 7*time.Second + 8*time.Millisecond},
}

// Encounters returns a scenario for each kind of fault but slow verbs, in which it meets each state of lanes over RDMA and over
// TCP, and of sessions; for a kind that kills a machine, one for each state. What the machines send over sockets comes late, so
// that sessions and lanes stay in their states for long.
func Encounters() iter.Seq2[string, *Scenario] {
	return func(yield func(string, *Scenario) bool) {
		for i := range kinds {
			k := &kinds[i]
			for _, carrier := range []string{"rdma", "tcp"} {
				if k.amount.unit != nil && k.amount.draw == nil || k.target == adapterEnd && carrier == "tcp" {
					continue
				}
				name := k.name + " over " + carrier
				if k.target == wholeMachine {
					name = "machine " + name
				}
				if k.name != killed && k.name != unpowered {
					s := encounter(carrier)
					for m := range moments {
						s.meet(k, m)
					}
					if !yield(name, s) {
						return
					}
					continue
				}
				for m := range moments {
					s := encounter(carrier)
					s.meet(k, m)
					s.Expect.Deaths = []string{"nb"}
					if !yield(name+", "+moments[m].name, s) {
						return
					}
				}
			}
		}
	}
}

// encounter returns a scenario in which lanes and sessions go through all states.
func encounter(carrier string) *Scenario {
	s, _ := NewScenario(1)
	s.Management = false
	s.Settings["NCCL_MESH_TRANSPORT"] = carrier
	s.Ring(2, 2, carrier == "rdma")
	c := Traffic(400, 1<<14)
	c.Pauses = 100
	s.ConnectAll(c)
	for _, m := range s.Machines {
		s.Faults = append(s.Faults, Fault{Cable: -1, Machine: m, Kind: "late", Amount: int64(10 * time.Millisecond)})
	}
	for _, at := range []time.Duration{300 * time.Millisecond, 4 * time.Second} {
		s.Faults = append(s.Faults, Fault{At: at, Traffic: true, For: 1600 * time.Millisecond, Cable: 0, Kind: "cut"})
	}
	for cable := range s.Cables {
		s.Faults = append(s.Faults, Fault{At: 7 * time.Second, Traffic: true, Cable: cable, Kind: "streams reset"})
	}
	return s
}

// meet adds a fault of a kind at a moment.
func (s *Scenario) meet(k *kind, moment int) {
	m := moments[moment]
	f := Fault{At: m.at, Traffic: m.traffic, For: 20 * time.Millisecond, Kind: k.name, Amount: k.amount.of(0.2)}
	switch {
	case k.target == wholeMachine:
		f.Cable, f.Machine = -1, "nb"
	case k.ended():
		f.Machine = "nb"
	}
	if f.deadly() {
		f.For = 0
	}
	s.Faults = append(s.Faults, f)
}
