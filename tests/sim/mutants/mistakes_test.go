package mutants

const (
	failover = "transport/conn/failover.go"
	recv     = "transport/conn/receiver.go"
	leave    = "transport/conn/drain.go"
)

// mistakes are those that tests/failover plants in its model, made in the code, and the like.
var mistakes = []mutant{
	{
		name:  "untracked: a slot is granted while a grant again into it is under way",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{recv, "r.regrants.none() && !r.regrantsInFlight.has(req.index)", "r.regrants.none()"}},
		tests: skewed,
		found: job{"TestSkewedCables", 48, false},
	},
	{
		name:  "forgotten: a grant again is taken for landed when the receiver has drained its lane",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{recv, "!r.regrantsInFlight.has(req.index)", "!(r.regrantsInFlight.has(req.index) && r.lanes[req.lane].State() != lane.Stopped)"}},
		tests: halted,
		found: job{"TestStoppedAsLanesFail", 20, false},
	},
	{
		name:  "allAgain: what was granted over other lanes is granted again too, over any lane",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{
			{failover, "if over && (!begun || again || r.unexpected.everUsed())", "if !begun || again || r.unexpected.everUsed()"},
			{failover, "case l.Port.Traits().Polled, r.isSettled(l):", "case true:"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 6, false},
	},
	{
		name:  "earlyRewrite: grants again before the LaneDown of the sender",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{
			{leave, "\tv.drained = true\n", "\tif !c.Sending {\n\t\tv.report, c.resumePending = c.receiver.report(v.Lane), true\n\t}\n\tv.drained = true\n"},
			{leave, "m := c.receiver.report(v.Lane)", "m := v.report"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 2, true},
	},
	{
		name:  "earlyReport: Report before the end of the receiver is drained",
		wrong: "parts that have come are not in it, and are sent again",
		edits: []edit{
			{leave, "\tdrained     bool  ", "\tearly  bool\n\tdrained     bool  "},
			{leave, "\t\tif !v.drained && c.checkDrained(v) {", "\t\tif !c.Sending && v.peerDrained && !v.early {\n\t\t\tv.early = c.settle(v)\n\t\t}\n\t\tif !v.drained && c.checkDrained(v) {"},
			{leave, "if !v.drained || !c.settle(v) {", "if !v.drained || !v.early && !c.settle(v) {"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 2, true},
	},
	{
		name:  "deafReport: Report before the LaneDown of the sender",
		wrong: "a send is done before its data is at the receiver",
		edits: []edit{{leave, "case !v.peerDrained, c.Sending && v.report == nil:", "case c.Sending && (!v.peerDrained || v.report == nil):"}},
		tests: skewed,
		found: job{"TestSkewedCables", 2, true},
	},
	{
		name:  "earlyResend: parts are sent again before the Report",
		wrong: "a part lands in a buffer that was given back, or is counted twice",
		edits: []edit{
			{leave, "\tv.drained = true\n", "\tif c.Sending {\n\t\tc.settleReport(v.Lane, &handshake.Report{Epoch: 1<<32 - 2, Again: 16})\n\t}\n\tv.drained = true\n"},
			{failover, "\t\tif !named {\n", "\t\tif early := m.Epoch == 1<<32-2; early {\n\t\t\tif req.sent.lost |= req.remaining & over(req, l); req.sent.lost != 0 {\n\t\t\t\ts.resendPending = true\n\t\t\t}\n\t\t\tcontinue\n\t\t}\n\t\tif !named {\n"},
			{failover, "// partsOf returns the parts", "func over(req *Request, l *lane.Lane) (parts uint32) {\n\tfor k := range int(req.sent.last) + 1 {\n\t\tif req.sent.lanes[k] == l.Index {\n\t\t\tparts |= 1 << k\n\t\t}\n\t}\n\treturn parts\n}\n\n// partsOf returns the parts"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 6, true},
	},
	{
		name:  "resendDone: parts are sent again of receives that the Report does not name",
		wrong: "a part lands in a buffer that was given back",
		edits: []edit{
			{failover, "\t\t\tparts = allParts\n\t\t}\n\t\tfor k", "\t\t\tparts = 0\n\t\t}\n\t\tfor k"},
			{failover, "case over && parts&bit == 0:", "case over && named && parts&bit == 0:"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 4, true},
	},
	{
		name:  "ackedAnywhere: parts acknowledged over other lanes must be in the Report too",
		wrong: "the connection ends over a part that is on its way",
		edits: []edit{{failover, "case over && parts&bit == 0:", "case req.remaining&bit == 0 && parts&bit == 0:"}},
		tests: skewed,
		found: job{"TestSkewedCables", 18, true},
	},
	{
		name:  "heedless: parts are sent again without leave",
		wrong: "more parts sent again are under way than receives were posted for",
		edits: []edit{{failover, "case !req.isEager() && !charged && s.resendCredit == 0:", "case false:"}},
		tests: halted,
		found: job{"TestStoppedAsLanesFail", 145, false},
	},
	{
		name:  "elsewhere: grants that lack a key are granted again over another lane while the first may land",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{failover, "case l.Port.Traits().Polled, r.isSettled(l):", "case true:"}},
		tests: window,
		found: job{"TestPortsJoinFullWindow", 13, false},
	},
	{
		name:  "uncounted: of two grants again into a slot the first to land stands for both",
		wrong: "a late grant overwrites one that the sender has not read",
		edits: []edit{{failover, "r.regrantsInFlight[req.index]++", "r.regrantsInFlight[req.index] = 1"}},
		tests: window,
		found: job{"TestPortsJoinFullWindow", 50, false},
	},
	{
		name:  "keyless: a grant again that takes along a key is not repeated when its lane fails",
		wrong: "parts that were lost wait for ever for a key",
		edits: []edit{{failover, "(!begun || again || r.unexpected.everUsed()", "(!begun || again && false || r.unexpected.everUsed()"}},
		tests: window,
		found: job{"TestCablesGoAsPortJoins", 87, false},
	},
	{
		name:  "heldUp: parts that have leave wait for those before them that have none",
		wrong: "the leave is with parts that are not sent, and nothing goes on",
		edits: []edit{{failover, "\t\t\t\tneedsCredit = true\n\t\t\t\tcontinue\n", "\t\t\t\treturn false\n"}},
		tests: skewed,
		found: job{"TestSkewedCables", 4, true},
	},
	{
		name:  "chargedTwice: a part that is lost twice needs leave twice",
		wrong: "the leave is used up, and nothing goes on",
		edits: []edit{
			{failover, "charged := req.sent.resent&(1<<k) != 0", "charged := false"},
		},
		tests: skewed,
		found: job{"TestSkewedCables", 8, false},
	},
}
