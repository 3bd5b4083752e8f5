package mutants

const (
	flush        = "transport/conn/flush.go"
	registration = "transport/lane/verbs/registration.go"
)

var gpu = []string{"TestGPUMemory"}

// gpuMistakes are mistakes with GPU memory.
var gpuMistakes = []mutant{
	{
		name:  "oneDevice: a flush asks the first device only",
		wrong: "the GPU does not see what other devices have written",
		edits: []edit{{flush, "if r.flushes.visible[place] >= f.until[place] {", "if place > 0 || r.flushes.visible[place] >= f.until[place] {"}},
		tests: gpu,
		found: job{"TestGPUMemory", 1, true},
	},
	{
		name:  "coversMore: a flush covers what arrived after it began",
		wrong: "the GPU does not see what arrived after the READ was carried out",
		edits: []edit{{flush, "if fs.visible[place] = fs.begun[place]; fs", "if fs.visible[place] = fs.arrived[place]; fs"}},
		tests: gpu,
		found: job{"TestGPUMemory", 7, true},
	},
	{
		name:  "uncopied: a frame counts as delivered before its bytes are copied to GPU memory",
		wrong: "a message is done before its bytes are there",
		edits: []edit{{"transport/lane/circuit/recv.go", "a.from, a.to, a.held, a.slot = uint64(ibv.AddrOf(&payload[0])), c.piece(n), true, slot", "a.from, a.to, a.held, a.slot = uint64(ibv.AddrOf(&payload[0])), c.piece(n), true, slot\n\t\tif err := c.startReads(); err != nil {\n\t\t\treturn err\n\t\t}\n\t\ta.done = true"}},
		tests: gpu,
		found: job{"TestGPUMemory", 1, true},
	},
}
