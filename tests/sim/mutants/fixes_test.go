package mutants

import "slices"

// The tests of tests/sim/mesh that have mutants to find.
var (
	skewed  = []string{"TestSkewedCables"}
	window  = []string{"TestPortsJoinFullWindow", "TestCablesGoAsPortJoins"}
	stutter = []string{"TestLinesStutter"}
	halted  = []string{"TestStoppedAsLanesFail"}
	last    = []string{"TestCablesFailAtLastMessages"}
	begin   = []string{"TestCablesFailInSetUp"}
	set     = []string{"TestSkewedCables", "TestSkewedRelays", "TestRDMACablesFail"}
	relayed = []string{"TestSkewedRelays", "TestRDMACablesFail"}
	memory  = []string{"TestMemoryComesAndGoes"}
	detours = []string{"TestDetours"}
	quiet   = []string{"TestNoFaultThroughRelays"}
	stopped = []string{"TestStoppedIsWaitedFor", "TestStoppedInSetUp", "TestProcessIsStopped"}
	between = []string{"TestStoppedAtEachCall", "TestStoppedIsWaitedFor"}
)

var all = slices.Concat(fixes, mistakes, gpuMistakes, puts)

// fixes are those of pure interleavings, taken back.
var fixes = []mutant{
	{
		name:  "a lane that breaks in its first moment is not told of",
		fix:   "32b697d",
		wrong: "what it carried is never sent again, and its place goes to the next lane",
		edits: []edit{{"transport/conn/drain.go", "case err != nil && mask&(1<<l.Index) != 0:", "case err != nil && mask&(1<<l.Index) != 0 && l.InService():"}},
		tests: stutter,
		found: job{"TestLinesStutter", 376, true},
	},
	{
		name:  "a credit counts as told when it is posted",
		fix:   "19aa66f",
		wrong: "a credit that fails goes unseen, and the sender waits for ever",
		edits: []edit{{"transport/relay/hop/endpoint.go", "return !e.credit && e.freed == freed", "return e.freed == freed"}},
		tests: last,
		found: job{"TestCablesFailAtLastMessages", 118, false},
	},
	{
		name:  "a first set-up without a lane ends the connection",
		fix:   "75c5799",
		wrong: "the job fails, although another way would have served",
		edits: []edit{{"transport/conn/setup.go", "\ts.markAllLost()\n\treturn nil\n", "\treturn ErrNoLane\n"}},
		tests: begin,
		found: job{"TestCablesFailInSetUp", 61, false},
	},
	{
		name:  "the peer hears that a lane is not in service before it hears which are",
		fix:   "86aa07c",
		wrong: "the sender puts a lane into service that is on its way out at the receiver",
		edits: []edit{{"transport/conn/setup.go", `	if !s.c.Sending {
		err = s.c.send(s.validatedMessage(validated & mask))
	}
	if mask == 0 && err == nil {
		err = s.noLaneUp()
	}
	s.c.mu.Unlock()
`, `	if mask == 0 && err == nil {
		err = s.noLaneUp()
	}
	s.c.mu.Unlock()
	if !s.c.Sending && err == nil {
		time.Sleep(2 * time.Millisecond)
		err = s.c.send(s.validatedMessage(validated & mask))
	}
`}},
		tests: set,
		found: job{"TestSkewedCables", 1, true},
	},
	{
		name:  "a circuit that comes for a lane given up is a stranger's",
		fix:   "5cff2a1",
		wrong: "the user is warned of a circuit that nobody expects",
		edits: []edit{{"transport/relay/deliver.go", "case late: // no fault", "case late && false: // no fault"}},
		tests: relayed,
		found: job{"TestSkewedRelays", 20, true},
	},
	{
		name:  "grants that went without keys are not granted again",
		fix:   "f87d20c",
		wrong: "parts that were lost wait for ever for a key",
		edits: []edit{{"transport/conn/failover.go", "(r.rekey(req) || req.noKeys)", "r.rekey(req)"}},
		tests: detours,
		found: job{"TestDetours", 12, true},
	},
	{
		name:  "memory is given back while a port that joins registers it",
		fix:   "cc8d3ee",
		wrong: "a registration has no holder, and its device does not close",
		edits: []edit{
			{"transport/conn/region.go", "\tc.awaitJoining(r)\n\tif err := r.Release()", "\tif err := r.Release()"},
			{"transport/conn/region.go", "\tc.awaitJoining(r)\n\tif r.InUse > 0 {", "\tif r.InUse > 0 {"},
		},
		tests: memory,
		found: job{"TestMemoryComesAndGoes", 1, false},
	},
	{
		name:  "who is asked for a circuit to a neighbour that it has not heard does not ask for it",
		fix:   "413db1c",
		wrong: "the way through it stays away for as long as the job runs",
		edits: []edit{{"transport/overlay/sessions.go", "\t\tp.discovery.ExpectMore()\n\t\tp.discovery.Solicit()\n\t}\n\tlook :=", "\t\treturn nil, fmt.Errorf(\"%w: process %.8v does not answer at the other end of %s\", fault.ErrUnreachable, process, at.Short())\n\t}\n\tlook :="}},
		tests: relayed,
		found: job{"TestSkewedRelays", 20, true},
	},
	{
		name:  "a lane does not wait for a peer that was stopped between two proofs",
		fix:   "c62e096",
		wrong: "a lane is lost for the connection's life",
		edits: []edit{
			{"transport/conn/validate.go", "v.peerResult != nil && (v.pending == 0 || v.s.overdue(v.peerResultAt))", "v.peerResult != nil && (v.pending == 0 || v.s.clock.Ran()-v.peerResultAt >= v.s.c.env.Clock.Scaled(v.s.c.env.ProofWait))"},
			{"transport/conn/validate.go", "return v.s.overdue(v.firstValidated)", "return v.s.clock.Ran()-v.firstValidated >= v.s.c.env.Clock.Scaled(v.s.c.env.ProofWait)"},
		},
		tests: between,
		found: job{"TestStoppedAtEachCall", 284, true},
	},
	{
		name:  "a socket does not wait for a peer that was stopped between two",
		fix:   "f6db0a3",
		wrong: "a lane is lost for the connection's life",
		edits: []edit{{"transport/conn/connect.go", "case first >= 0 && s.overdue(first), ran", "case first >= 0 && now-first >= proof, ran"}},
		tests: stopped,
		found: job{"TestStoppedIsWaitedFor", 109, false},
	},
	{
		name:  "a message is acknowledged before it is handled",
		fix:   "81220f4",
		wrong: "the end of a circuit overtakes the Bye of its connection, and counts as a failure",
		edits: []edit{
			{"transport/control/session.go", "Number: l.next, Ack: s.handled, Body", "Number: l.next, Ack: s.received, Body"},
			{"transport/control/session.go", "l.acked, l.mustSend = s.handled, false\n\t\tl.next++", "l.acked, l.mustSend = s.received, false\n\t\tl.next++"},
			{"transport/control/session.go", `	if l.acked != s.handled || l.mustSend {
		out = l.sealer.Append(out, &handshake.Frame{Type: handshake.TypeAck, Number: l.next - 1, Ack: s.handled})
		l.acked, l.mustSend = s.handled, false
`, `	if l.acked != s.received || l.mustSend {
		out = l.sealer.Append(out, &handshake.Frame{Type: handshake.TypeAck, Number: l.next - 1, Ack: s.received})
		l.acked, l.mustSend = s.received, false
`},
			{"transport/control/session.go", "\ts.event.Broadcast()\n\treturn true, nil\n", "\ts.event.Broadcast()\n\tl.signal()\n\treturn true, nil\n"},
			{"transport/control/session.go", "\t\t\tfor _, m := range messages {\n", "\t\t\tfor _, m := range messages {\n\t\t\t\tif _, bye := m.(*handshake.Bye); bye {\n\t\t\t\t\ttime.Sleep(5 * time.Millisecond)\n\t\t\t\t}\n"},
		},
		tests: quiet,
		found: job{"TestNoFaultThroughRelays", 1, false},
	},
}
