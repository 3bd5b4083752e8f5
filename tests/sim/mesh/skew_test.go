package mesh_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/mesh"
)

// Two machines send each other messages without a pause over cables that differ in all that cables can differ in, each
// direction by itself, and queue pairs fail again and again. What goes over one cable is overtaken by what goes over another,
// so that the parts, grants and reports of many outages meet.
func TestSkewedCables(t *testing.T) {
	skewed(t, func(k *skew) {
		k.cables = ring(k.w, 2, 2+int(k.Uint64N(4)), true)
		k.faults = 1 + int(k.Uint64N(40))
		k.early = k.Chance(0.3)
		k.reliable = true
	}, func(k *skew, j *mesh.Job) {
		n, most := k.messages(j)
		if k.Chance(0.3) {
			j.Connect(0, 1, n, most)
		} else {
			j.All(n, most)
		}
	})
}

// So do the ends of a row of three, through circuits of the machine in the middle.
func TestSkewedRelays(t *testing.T) {
	skewed(t, func(k *skew) {
		for i := range 3 {
			k.w.AddMachine(fmt.Sprintf("n%c", 'a'+i))
		}
		for i := range 2 {
			for range 1 + k.Uint64N(2) {
				k.cables = append(k.cables, k.w.Cable(len(k.cables), fast, true, k.w.Machines[i], k.w.Machines[i+1]))
			}
		}
		k.w.Management()
		k.faults = int(k.Uint64N(30))
		k.early = k.Chance(0.3)
		if k.Chance(0.3) { // to make a circuit takes longer than its ends wait
			for _, c := range k.cables {
				for _, a := range c.Adapters {
					a.Device.Slow("reg_mr", time.Duration(k.LogUniform(1, 300))*time.Millisecond)
				}
			}
		}
		if k.Chance(0.4) {
			k.then = append(k.then, func() { k.cut(k.cables) })
		}
	}, func(k *skew, j *mesh.Job) {
		n, most := k.messages(j)
		if k.Chance(0.5) { // connections that end soon, one after the other
			for range 1 + k.Uint64N(12) {
				j.Connect(0, 2, 1+int(k.Uint64N(20)), most)
			}
			return
		}
		n = n/4 + 1
		j.Connect(0, 2, n, most)
		if k.Chance(0.5) {
			j.Connect(2, 0, n, most)
		}
		if k.Chance(0.3) {
			j.Connect(0, 1, n, most)
		}
	})
}

// RDMA goes from the cables between two machines while messages flow, and returns, over and over, while other cables lead there
// through a third machine.
func TestDetours(t *testing.T) {
	skewed(t, func(k *skew) {
		k.cables = ring(k.w, 3, 1+int(k.Uint64N(2)), true)
		k.faults = int(k.Uint64N(8))
		direct := k.cables[:len(k.cables)/3]
		k.then = append(k.then, func() {
			at, pace := time.Duration(0), time.Duration(k.LogUniform(500, 6000))*time.Millisecond
			for range 1 + k.Uint64N(6) {
				for _, c := range direct {
					end := int(k.Uint64N(2))
					k.w.Clock.After(at+k.Between(0, pace/4), "no RDMA", func() { c.Adapters[end].Off(true) })
					k.w.Clock.After(at+k.Between(pace, 2*pace), "RDMA again", func() { c.Adapters[end].Off(false) })
				}
				at += k.Between(2*pace, 4*pace)
			}
		})
	}, func(k *skew, j *mesh.Job) {
		n, most := k.messages(j)
		j.Pauses = 0.05 * float64(k.Uint64N(8)) // so that there are messages for as long as RDMA comes and goes
		j.Connect(0, 1, n, most)
		if k.Chance(0.5) {
			j.Connect(1, 0, n, most)
		}
	})
}

// Ports without a carrier when the connections are set up get it while messages flow, or when they have just ended.
func TestLatePorts(t *testing.T) {
	skewed(t, func(k *skew) {
		k.cables = ring(k.w, 2, 2+int(k.Uint64N(2)), true)
		k.transport = []string{"auto", "rdma"}[k.Uint64N(2)]
		k.faults = int(k.Uint64N(8))
		late := k.cables
		if k.transport == "rdma" {
			late = late[1:]
		}
		for _, c := range late {
			if !k.Chance(0.7) {
				continue
			}
			if k.Chance(0.6) {
				c.Adapters[0].Device.Slow("reg_mr", time.Duration(k.LogUniform(10, 100_000))*time.Microsecond)
			}
			end, deep := int(k.Uint64N(2)), k.Chance(0.5)
			c.Adapters[end].Off(true)
			if deep {
				c.Off(end, true, true)
			}
			k.then = append(k.then, func() {
				k.w.Clock.After(time.Duration(k.LogUniform(10, 400_000))*time.Microsecond, "the port is there", func() {
					c.Off(end, true, false)
				})
			})
		}
	}, func(k *skew, j *mesh.Job) {
		n, most := k.messages(j)
		j.All(n/2+1, most)
	})
}

// A skew is what such tests draw.
type skew struct {
	*bus.Source
	w         *mesh.World
	cables    []*mesh.Cable
	transport string
	faults    int      // queue pairs that fail
	early     bool     // also while connections are set up
	reliable  bool     // a queue pair that does not fail loses nothing
	then      []func() // what happens when messages flow
}

// messages draws how many messages a connection carries, and how large they are at most.
func (k *skew) messages(j *mesh.Job) (n, most int) {
	j.Pauses = 0.01 * float64(k.Uint64N(3))
	switch k.Uint64N(5) {
	case 0, 1: // in several parts
		return 50 + int(k.Uint64N(600)), 1 << (16 + k.Uint64N(5))
	case 2:
		return 500 + int(k.Uint64N(2000)), 1 << (4 + k.Uint64N(14))
	}
	j.Window, j.Group = 256, 1+int(k.Uint64N(2)) // as many receives as there can be: the ring of grants is full
	return 500 + int(k.Uint64N(3500)), 1 << (4 + k.Uint64N(10))
}

// cut takes the carrier from cables, and gives it back, a few times.
func (k *skew) cut(cables []*mesh.Cable) {
	at, pace := time.Duration(0), time.Duration(k.LogUniform(1000, 2_000_000))*time.Microsecond
	for range 1 + k.Uint64N(5) {
		c := cables[k.Uint64N(uint64(len(cables)))]
		at += k.Between(0, pace)
		k.w.Clock.After(at, "cut", func() { c.Cut(true) })
		at += k.Between(pace/2, 2*pace)
		k.w.Clock.After(at, "mended", func() { c.Cut(false) })
	}
}

// skewed draws cables, work and faults for each seed, and plays them.
func skewed(t *testing.T, shape func(*skew), work func(*skew, *mesh.Job)) {
	each(t, func(t *testing.T, seed uint64) {
		bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
			k := &skew{Source: b.Source("shape"), w: mesh.NewWorld(t, b), transport: "rdma"}
			shape(k)
			for _, c := range k.cables {
				for end := range 2 {
					if k.Chance(0.5) {
						c.Delay(end, time.Duration(k.LogUniform(1, 5000))*time.Microsecond)
					}
					if k.Chance(0.5) {
						c.Slow(end, int64(k.LogUniform(5, 12_500))*1_000_000)
					}
					if k.Chance(0.3) {
						c.Adapters[end].Device.Late(time.Duration(k.LogUniform(1, 3000)) * time.Microsecond)
					}
				}
			}
			for _, m := range k.w.Machines {
				if k.Chance(0.5) {
					m.Delay(time.Duration(k.LogUniform(1, 5000)) * time.Microsecond)
				}
			}
			j := k.w.NewJob(map[string]string{"NCCL_MESH_TRANSPORT": k.transport, "NCCL_MESH_LANE_WAIT": "150"}, k.w.Machines...)
			work(k, j)
			at, broken := time.Duration(0), 0
			fail := func() {
				pace := time.Duration(k.LogUniform(100, 30_000)) * time.Microsecond
				for range k.faults {
					a := k.cables[k.Uint64N(uint64(len(k.cables)))].Adapters[k.Uint64N(2)]
					acks, which := k.Chance(0.3), k.Uint64()
					at += k.Between(0, 2*pace)
					k.w.Clock.After(at, "queue pair fails", func() {
						if acks {
							a.LoseAcks(1 + int(which%20))
						}
						if all := a.Device.QueuePairs(); len(all) > 0 {
							k.w.Fabric.Break(all[which%uint64(len(all))])
							broken++
						}
					})
				}
				at += b.Now()
			}
			j.Begun = func() {
				if !k.early {
					fail()
				}
				for _, f := range k.then {
					f()
				}
			}
			if k.early {
				fail()
			}
			j.Run(5 * time.Minute)
			if k.Chance(0.3) {
				j.Heal(at, healed)
			}
			j.End()
			for _, line := range strings.Split(j.Logs(), "\n") {
				if k.reliable && strings.Contains(line, "no grant arrived over it") {
					t.Errorf("a grant that no lane has lost did not come: %s", line)
				}
			}
			if t.Failed() || testing.Verbose() {
				t.Logf("%s over %d cables; %d queue pairs failed\n%s", k.transport, len(k.cables), broken, j.Logs())
				t.Log(k.w.Net.Counts(), k.w.Fabric.Counts())
			}
		})
	})
}
