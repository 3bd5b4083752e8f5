package mutants

const (
	lost    = "transport/conn/putlost.go"
	putting = "transport/conn/put.go"
	signals = "transport/conn/signal.go"
)

// exchanged are the tests with one-sided operations.
var exchanged = []string{"TestExchangeBursts", "TestExchangeSkewedCables", "TestExchangeStoppedAsLanesFail", "TestExchangeLinesStutter"}

// puts are mistakes with puts and signals.
var puts = []mutant{
	{
		name:  "puts again: a part of a put is sent again although a signal behind it has arrived",
		wrong: "it overwrites memory that the program uses for something else",
		edits: []edit{{lost, "case p.numbers[k] < proven:", "case p.numbers[k] < proven && false:"}},
		tests: exchanged,
		found: job{"TestExchangeSkewedCables", 10, true},
	},
	{
		name:  "puts late: a lost part of a signal is sent again before lost puts are delivered",
		wrong: "the program sees the signal and not the bytes",
		edits: []edit{{lost, "p.remaining&p.again != 0 && p.posted < posted", "p.remaining&p.again != 0 && p.posted < posted && false"}},
		tests: exchanged,
		found: job{"TestExchangeSkewedCables", 1, false},
	},
	{
		name:  "puts beside: a signal has no part on lanes that carried puts, but one",
		wrong: "the program sees the signal and not the bytes",
		edits: []edit{{signals, "\t\t\tmask |= s.puts.touched & (1 << i)\n", "\t\t\tif mask == 0 {\n\t\t\t\tmask |= s.puts.touched & (1 << i)\n\t\t\t}\n"}},
		tests: exchanged,
		found: job{"TestExchangeSkewedCables", 1, true},
	},
	{
		name:  "puts unsettled: a signal is posted while parts of puts are lost",
		wrong: "the program sees the signal and not the bytes",
		edits: []edit{{signals, "s.resendPending, !s.puts.settled(s.lanes):", "false:"}},
		tests: exchanged,
		found: job{"TestExchangeBursts", 8, true},
	},
	{
		name:  "puts renumbered: a part of a put that is sent again counts as posted when it was first",
		wrong: "a signal that went over the lane before passes for one behind it, and the bytes are never sent again",
		edits: []edit{{putting, "\tp.lanes[k], p.numbers[k] = l.Index, s.posted\n", "\tp.lanes[k] = l.Index\n\tif p.again&(1<<k) == 0 {\n\t\tp.numbers[k] = s.posted\n\t}\n"}},
		tests: exchanged,
		found: job{"TestExchangeBursts", 85, false},
	},
	{
		name:  "puts carried: a part of a put that a brief signal has carried, and that was lost, still counts as delivered with a part of that signal",
		wrong: "the put ends before its bytes are there, and then once more",
		edits: []edit{{lost, "\t\t\tp.carried &^= 1 << k\n", ""}},
		tests: exchanged,
		found: job{"TestExchangeBursts", 2, true},
	},
	{
		name:  "puts mistaken: a brief signal has a number that stands for another signal at the peer",
		wrong: "the peer changes another word, or by another value",
		edits: []edit{{"transport/onesided/progress.go", "\tif p.announced[n] != s {\n", "\tif p.announced[n] == (signal{}) {\n"}},
		tests: exchanged,
		found: job{"TestExchangeBursts", 1, true},
	},
	{
		name:  "puts keyless: the sender is not told of the keys of windows on a port that joins",
		wrong: "puts wait for a key for ever",
		edits: []edit{{"transport/conn/domain.go", "\t\t\t\tc.receiver.announceKeys()\n", ""}},
		tests: []string{"TestExchangeCablesGoAsPortJoins", "TestExchangeLatePorts"},
		found: job{"TestExchangeCablesGoAsPortJoins", 2, true},
	},
	{
		name:  "puts agreed: the sender agrees to the end of a window while parts of puts are on their way",
		wrong: "a window is written after its end, or the connection fails",
		edits: []edit{{putting, "if w.ending && w.parts == 0 {", "if w.ending {"}},
		tests: exchanged,
		found: job{"TestExchangeBursts", 7, false},
	},
	{
		name:  "puts unseen: a signal is acted on before puts into GPU memory are made visible",
		wrong: "the GPU sees the signal and not the bytes",
		edits: []edit{{"transport/onesided/progress.go", "\tif p.gpu != nil {\n", "\tif false {\n"}},
		tests: []string{"TestExchangeGPUBursts", "TestExchangeGPUMemory"},
		found: job{"TestExchangeGPUBursts", 1, true},
	},
	{
		name:  "puts half seen: puts into GPU memory are made visible by the device that carried the signal only",
		wrong: "bytes that were sent again over another device are not there",
		edits: []edit{{"transport/conn/incoming.go", "r.flushes.noteGPUPuts(len(r.domains))", "r.flushes.arrived[l.Domain]++"}},
		tests: []string{"TestExchangeGPUBursts", "TestExchangeGPUMemory"},
		found: job{"TestExchangeGPUBursts", 12, true},
	},
}
