package mutants

// preempted are edits by which, where the variable PREEMPT is set, a goroutine that gives a turn back that it has waited for is
// at times preempted for up to 2 ms. In virtual time a goroutine is otherwise never preempted between two instructions: it is
// as if nothing took time, and what may happen between two critical sections cannot. NCCL's threads only try for a turn on the
// data path, and are left alone there.
var preempted = []edit{
	{"transport/turn/turn.go", "import (\n", "import (\n\t\"os\"\n\t\"time\"\n"},
	{"transport/turn/turn.go", "	held atomic.Int32 ", "	long atomic.Bool // the holder may be preempted when it gives the turn back\n	held atomic.Int32 "},
	{"transport/turn/turn.go", "		<-t.queue()\n	}\n", "		<-t.queue()\n	}\n	t.long.Store(true)\n"},
	{"transport/turn/turn.go", "	switch left := t.held.Add(-1); {", "	if t.long.Swap(false) {\n		defer preempt()\n	}\n	switch left := t.held.Add(-1); {"},
	{"transport/turn/turn.go", "var _ sync.Locker = (*Turn)(nil)\n", `var _ sync.Locker = (*Turn)(nil)

var (
	preempts = os.Getenv("PREEMPT") != ""
	instant  atomic.Int64 // of the last draw
	draws    atomic.Uint64 // at that instant
)

// preempt waits at times. What is drawn hangs on the instant, and on how many draws there were at it.
func preempt() {
	if !preempts {
		return
	}
	now := time.Now().UnixNano()
	if instant.Swap(now) != now {
		draws.Store(0)
	}
	x := uint64(now) + draws.Add(1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	if x ^= x >> 31; x%16 == 0 {
		time.Sleep(time.Duration(x>>32%2000) * time.Microsecond)
	}
}
`},
}

// narrow are edits by which less may be under way: what happens at a limit happens often.
var narrow = []edit{
	{"transport/lane/limits.go", "Window     = 256 ", "Window     = 64 "},
	{"handshake/report.go", "MaxReceives = 256 ", "MaxReceives = 64 "},
	{"transport/lane/limits.go", "Resends = 256", "Resends = 16"},
}
