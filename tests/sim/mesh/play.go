package mesh

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
)

// told is how long after the death of a process its peers may go on without an error: as long as lanes are waited for, and
// a little for what comes before and after.
const told = 15 * time.Second

// Play runs a scenario, and fails the test where the run does not show what is expected. It logs a run that fails, and with -v
// each: the scenario, what was done to it and what the processes logged.
func Play(t *testing.T, s *Scenario) {
	t.Helper()
	PlayInto(t, s, &Outcome{})
}

// PlayInto is [Play]. It tells o of the run, also where the run ends the test.
func PlayInto(t *testing.T, s *Scenario, o *Outcome) {
	t.Helper()
	o.Scenario = s.String()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		o.end(t.Failed())
		if t.Failed() || testing.Verbose() {
			t.Log(o)
		}
	}()
	bus.Run(t, s.Seed, func(t *testing.T, b *bus.Bus) { s.Run(t, b, o) })
}

// Run runs a scenario on a bus, and tells o, which may be nil, of the run.
func (s *Scenario) Run(t *testing.T, b *bus.Bus, o *Outcome) {
	w := NewWorld(t, b)
	if o != nil {
		defer func() { o.take(w) }()
	}
	for _, m := range s.Machines {
		w.AddMachine(m)
	}
	for _, c := range s.Cables {
		w.Cable(c.Number, c.Speed, c.RDMA, w.machine(c.From), w.machine(c.To))
	}
	if s.Management {
		w.Management()
	}
	w.strike(s, false)
	j := w.NewJob(s.Settings, w.Machines...)
	for _, c := range s.Connections {
		j.Connect(c)
	}
	for _, x := range s.Exchanges {
		j.Exchange(x)
	}
	j.Begun = func() {
		w.note("all connections carry messages")
		w.strike(s, true)
	}
	j.Play(s.limit())
	if len(s.Expect.Deaths) == 0 {
		j.must("run")
	} else {
		s.mourn(w, j)
	}
	if s.Expect.Healed > 0 {
		j.Heal(w.last, s.Expect.Healed)
	}
	if s.Expect.RDMA {
		j.overRDMA()
	}
	w.note("the connections are closed")
	j.End()
	if len(s.Expect.Deaths) > 0 {
		w.Clock.Sleep(time.Minute) // in which the goroutines end that a dead process would not have
	}
	if s.Expect.Grants {
		j.missed()
	}
	if s.Expect.Calm {
		for _, r := range j.ranks {
			for _, text := range r.Troubles() {
				w.Errorf("%s is not calm: %s", r.Name, text)
			}
		}
	}
}

// limit returns how long the job may take. The traffic is taken to begin soon: where it does not, the fault that keeps it from
// that is among those of the other kind.
func (s *Scenario) limit() time.Duration {
	var early, late time.Duration
	for _, f := range s.Faults {
		at, end := &early, f.At+f.For
		if f.Traffic || f.Until {
			at = &late
		}
		*at = max(*at, end)
	}
	return early + late + s.Expect.Within
}

// mourn fails the test unless, of each machine whose process has died, all connections have failed at the other end, soon, with
// an error that names the node, and no others have.
func (s *Scenario) mourn(w *World, j *Job) {
	for _, r := range j.ranks {
		if r.killed.Load() {
			continue
		}
		for _, f := range r.broken {
			peer := f.Peer()
			if !slices.Contains(s.Expect.Deaths, peer.Machine.Name()) || !peer.killed.Load() {
				w.Errorf("%v failed, although the process of another rank died: %v", f.Flow, f.Err)
				continue
			}
			if after := f.At - peer.died; after > told {
				w.Errorf("%v failed %v after the death", f.Flow, after)
			}
			if !peer.named(f.Err.Error()) {
				w.Errorf("%v failed with an error that does not name %s: %v", f.Flow, peer.Machine.Name(), f.Err)
			}
			if !strings.Contains(f.Err.Error(), "ncclRemoteError") {
				w.Errorf("%v failed with an error of the wrong class: %v", f.Flow, f.Err)
			}
		}
	}
}

// named reports whether a text names the machine, or one of its addresses: a process that has heard nothing of another knows no
// more.
func (m *Machine) named(text string) bool {
	if strings.Contains(text, m.Name()) {
		return true
	}
	for _, i := range m.Interfaces() {
		for _, p := range i.Prefixes() {
			if strings.Contains(text, p.Addr().String()+":") {
				return true
			}
		}
	}
	return false
}
