package mutants

const (
	resend = "transport/conn/failover.go"
	recv   = "transport/conn/receiver.go"
	drain  = "transport/conn/drain.go"
	lanes  = "transport/conn/failover/lanes.go"
	grants = "transport/conn/failover/grants.go"
	parts  = "transport/conn/failover/parts.go"
)

// mistakes are those that the tests of transport/conn/failover make in how the protocol is used, made in the code, and the like.
var mistakes = []mutant{
	{
		name:  "untracked: a slot is granted while a grant again into it is under way",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{grants, "g.waiting == 0 && g.inFlight[slot] == 0", "g.waiting == 0"}},
		tests: skewed,
		found: job{"TestSkewedCables", 48, false},
	},
	{
		name:  "forgotten: a grant again is taken for landed when the receiver has drained its lane",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{recv, "r.grants.MayGrant(uint8(req.index))", "(r.grants.MayGrant(uint8(req.index)) || !r.grants.Waiting() && r.lanes[r.grants.Lane(uint8(req.index))].State() == lane.Stopped)"}},
		tests: halted,
		found: job{"TestStoppedAsLanesFail", 20, false},
	},
	{
		name:  "allAgain: what was granted over other lanes is granted again too, over any lane",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{
			{grants, "if g.lane[r.Slot] == lane && (!r.Proved || g.inFlight[r.Slot] > 0)", "if !r.Proved || g.inFlight[r.Slot] > 0"},
			{resend, "case r.grants.MayMove(slot, &r.failover, l.Port.Traits().Polled):", "case true:"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 6, false},
	},
	{
		name:  "earlyRewrite: grants again before the LaneDown of the sender",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{
			{drain, "\tv.Enter(lane.Stopped)\n", "\tif !c.Sending {\n\t\tv.report, c.resumePending = c.receiver.report(v.Lane), true\n\t}\n\tv.Enter(lane.Stopped)\n"},
			{drain, "m := c.receiver.report(v.Lane)", "m := v.report"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 2, true},
	},
	{
		name:  "earlyReport: Report before the end of the receiver is drained",
		wrong: "parts that have come are not in it, and are sent again",
		edits: []edit{
			{drain, "\tsince  time.Time  ", "\tearly  bool\n\tsince  time.Time  "},
			{drain, "\t\tmoved = c.checkDrained(v) || moved\n", "\t\tif c.failover.At(v.Index) == failover.PeerDrained && !c.Sending && !v.early {\n\t\t\tv.early = true\n\t\t\tc.sendReport(v)\n\t\t}\n\t\tmoved = c.checkDrained(v) || moved\n"},
			{drain, "\tdefault:\n\t\tc.sendReport(v)\n", "\tcase !v.early:\n\t\tc.sendReport(v)\n"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 3, true},
	},
	{
		name:  "deafReport: Report before the LaneDown of the sender",
		wrong: "a send is done before its data is at the receiver",
		edits: []edit{{lanes, "LocalDrained: {PeerDown: {BothDrained, 0}, ", "LocalDrained: {PeerDown: {BothDrained, 0}, Reported: {Vacant, Settle | Close}, "}},
		tests: skewed,
		found: job{"TestSkewedCables", 2, true},
	},
	{
		name:  "earlyResend: parts are sent again before the Report",
		wrong: "a part lands in a buffer that was given back, or is counted twice",
		edits: []edit{
			{drain, "\tv.Enter(lane.Stopped)\n", "\tif c.Sending {\n\t\tc.settleReport(v.Lane, &handshake.Report{Epoch: 1<<32 - 2, Again: 16})\n\t}\n\tv.Enter(lane.Stopped)\n"},
			{resend, "\t\tdelivered, ok := req.sent.Settle(", "\t\tif m.Epoch == 1<<32-2 {\n\t\t\tif req.sent.Lost |= req.remaining & over(req, l); req.sent.Lost != 0 {\n\t\t\t\ts.resendPending = true\n\t\t\t}\n\t\t\tcontinue\n\t\t}\n\t\tdelivered, ok := req.sent.Settle("},
			{resend, "// partsOf returns the parts", "func over(req *Request, l *lane.Lane) (parts uint32) {\n\tfor k := range int(req.sent.Last) + 1 {\n\t\tif req.sent.Lanes[k] == l.Index {\n\t\t\tparts |= 1 << k\n\t\t}\n\t}\n\treturn parts\n}\n\n// partsOf returns the parts"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 6, true},
	},
	{
		name:  "resendDone: parts are sent again of receives that the Report does not name",
		wrong: "a part lands in a buffer that was given back",
		edits: []edit{
			{parts, "\t\tarrived = 1<<MaxParts - 1\n", "\t\tp.Lost |= p.Over(lane) & undelivered\n\t\treturn 0, true\n"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 1, true},
	},
	{
		name:  "ackedAnywhere: parts acknowledged over other lanes must be in the Report too",
		wrong: "the connection ends over a part that is on its way",
		edits: []edit{{parts, "if over&^undelivered&^arrived != 0", "if (uint32(1)<<(p.Last+1)-1)&^undelivered&^arrived != 0"}},
		tests: skewed,
		found: job{"TestSkewedCables", 2, true},
	},
	{
		name:  "heedless: parts are sent again without leave",
		wrong: "more parts sent again are under way than receives were posted for",
		edits: []edit{{resend, "case !req.isEager() && !s.resendCredit.MaySend(&req.sent.Parts, k):", "case false:"}},
		tests: halted,
		found: job{"TestStoppedAsLanesFail", 145, false},
	},
	{
		name:  "elsewhere: grants that lack a key are granted again over another lane while the first may land",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{resend, "case r.grants.MayMove(slot, &r.failover, l.Port.Traits().Polled):", "case true:"}},
		tests: window,
		found: job{"TestPortsJoinFullWindow", 13, false},
	},
	{
		name:  "uncounted: of two grants again into a slot the first to land stands for both",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{grants, "g.inFlight[slot]++", "g.inFlight[slot] = 1"}},
		tests: window,
		found: job{"TestPortsJoinFullWindow", 50, false},
	},
	{
		name:  "keyless: a grant again that takes along a key is not repeated when its lane fails",
		wrong: "parts that were lost wait for ever for a key",
		edits: []edit{{grants, "(!r.Proved || g.inFlight[r.Slot] > 0)", "!r.Proved"}},
		tests: window,
		found: job{"TestCablesGoAsPortJoins", 87, false},
	},
	{
		name:  "heldUp: parts that have leave wait for those before them that have none",
		wrong: "the leave is with parts that are not sent, and nothing goes on",
		edits: []edit{{resend, "\t\t\t\tneedsCredit = true\n", "\t\t\t\treturn false\n"}},
		tests: skewed,
		found: job{"TestSkewedCables", 120, false},
	},
	{
		name:  "chargedTwice: a part that is lost twice needs leave twice",
		wrong: "the leave is used up, and nothing goes on",
		edits: []edit{
			{parts, "return p.charged&(1<<k) != 0 || c.left > 0", "return c.left > 0"},
			{parts, "\tif p.charged&bit == 0 {\n\t\tc.left--\n\t}\n", "\tc.left--\n"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 85, true},
	},
}
