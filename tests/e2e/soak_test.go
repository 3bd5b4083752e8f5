package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// A million messages of random sizes, groups and tags, over communicators that come and go. A thread a rank: more would take turns.
func TestSoak(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestNoFault and tests/sim/mesh TestBusyCablesFail")
	const want = 1_000_000
	f := newFabric(t, triangle)
	connections := len(f.Nodes) * len(f.Nodes) // every rank to every one
	j := f.start(spec{args: []string{"--work", "soak", "--max", "1K", "--reopen", "100", "--messages", fmt.Sprint(want / connections * 102 / 100)}}).ok()
	m := regexp.MustCompile(`# soak: .* s, (\d+) messages, .* #wrong 0\n`).FindStringSubmatch(j.rank("a").output())
	if m == nil {
		j.fatalf("no figures of the soak")
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < want {
		j.errorf("%s messages, want %d", m[1], want)
	}
	t.Log(m[0])
}

// Messages of all sizes, in groups and with tags, while cables come and go at random every 50 ms, or lanes fail until one is left: 100,000
// in all. A busy machine may need longer than a cable stays to notice that it is there.
func TestSoakOverFailures(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestBusyCablesFail")
	tests := []struct {
		name   string
		over   over
		jobs   int
		each   int      // messages of a job
		faults []string // of a cable
	}{
		{"rdma", over{cabling{pairs: "ab", each: 4, link: "rate 400MB latency 20us"}, []string{"NCCL_MESH_LANE_WAIT=60"}}, 80, 1250,
			[]string{"unplug a:rab%d", "down b:rab%d", "stall port=a:rab%d", "ack port=b:rab%d", "event PORT_ERR b:rab%d"}},
		{"tcp", over{fourTCP, []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_LANE_WAIT=40"}}, 40, 2500,
			[]string{"unplug a:ab%d", "ip a link set ab%d down", "ip b addr flush dev ab%d"}},
	}
	for _, tt := range tests {
		seed := rand.Uint64()
		for i := range tt.jobs {
			t.Run(fmt.Sprintf("%s %d of %d, seed %d", tt.name, i+1, tt.jobs, seed), func(t *testing.T) {
				t.Parallel()
				f := newFabric(t, tt.over.topology())
				j := f.start(spec{env: tt.over.env, args: append(f.endless("--work soak --max 4M"), "--seed", fmt.Sprint(seed+uint64(i)))})
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				j.moves()
				if i%2 == 0 {
					j.flap(rnd, tt.faults[0], tt.over.each, tt.each)
				} else {
					j.fail(rnd, tt.faults, tt.over.each)
				}
				for j.lanesLost() == 0 {
					j.moves()
				}
				j.carries(tt.each)
				j.enough().ok()
				if j.lost() == 0 {
					j.errorf("no lane was lost")
				}
			})
		}
	}
}

// fail has all cables but one fail, one after another.
func (j *job) fail(rnd *rand.Rand, faults []string, cables int) {
	j.f.t.Helper()
	for _, cable := range rnd.Perm(cables)[1:] {
		fault := fmt.Sprintf(faults[rnd.IntN(len(faults))], cable)
		j.f.t.Log(fault)
		j.suffer(fault)
		if rnd.IntN(2) == 0 {
			j.moves()
		}
	}
}

// flapFor is how long cables flap at most: a lane that loses its cable before a large part is through begins that anew, and on a busy
// machine may never end it.
const flapFor = 30 * time.Second

// flap pulls cables and plugs them in again every 50 ms, at random, until a lane was lost and the job has moved so many messages. One at
// least is in, and in the end all are.
func (j *job) flap(rnd *rand.Rand, unplug string, cables, messages int) {
	j.f.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	in, out := cables, make([]bool, cables)
	turn := func(i int) {
		switch {
		case out[i]:
			j.suffer(strings.Replace(fmt.Sprintf(unplug, i), "unplug", "plug", 1))
			out[i], in = false, in+1
		case in > 1:
			j.suffer(fmt.Sprintf(unplug, i))
			out[i], in = true, in-1
		}
	}
	for begun := time.Now(); j.lanesLost() == 0 || j.messages() < messages && time.Since(begun) < flapFor; {
		turn(rnd.IntN(cables))
		select {
		case <-tick.C:
		case <-j.ranks[0].over:
			return
		}
	}
	for i := range out {
		if out[i] {
			turn(i)
		}
	}
}

// lanesLost counts what the ranks have said so far of lanes that were lost.
func (j *job) lanesLost() (n int) {
	for _, r := range j.ranks {
		n += r.count(lostLine.String())
	}
	return n
}

// carries waits until a soak has moved so many messages.
func (j *job) carries(messages int) {
	j.f.t.Helper()
	for j.messages() < messages {
		j.moves()
	}
}

// messages is how many a soak has moved, as the first rank said last.
func (j *job) messages() (n int) {
	said := regexp.MustCompile(`(?m)^# soak: \d+ s, (\d+) messages`).FindAllStringSubmatch(j.ranks[0].output(), -1)
	if len(said) > 0 {
		n, _ = strconv.Atoi(said[len(said)-1][1])
	}
	return n
}
