package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/tests/require"
)

// full is everything; without it a sample.
var full = require.IsFull()

// cabling is nodes of one letter with cables between them. The n-th cable of nodes a and b is abn: its interface has that name at both
// ends, and its device is rabn.
type cabling struct {
	pairs string // like "ab bc"
	each  int    // cables of a pair
	plain string // the nodes without RDMA
	link  string // more of each cable
}

// alone keeps lanes off the network beside the cables.
func (c cabling) alone() string {
	return "NCCL_MESH_IFNAME=" + strings.Join(strings.Fields(c.pairs), ",")
}

func (c cabling) topology() string {
	var ports, links strings.Builder
	for i, pair := range strings.Fields(c.pairs) {
		for k := range c.each {
			fmt.Fprint(&links, "link")
			for e, node := range strings.Split(pair, "") {
				name := fmt.Sprintf("%s%d", pair, k)
				if strings.Contains(c.plain, node) {
					fmt.Fprintf(&ports, "netif %s %s", node, name)
				} else {
					fmt.Fprintf(&ports, "port %s r%s netdev %[2]s", node, name)
					name = "r" + name
				}
				fmt.Fprintf(&ports, " addr 192.168.%d.%d/24\n", 10*i+k+1, e+1)
				fmt.Fprintf(&links, " %s:%s", node, name)
			}
			fmt.Fprintln(&links, "", c.link)
		}
	}
	return ports.String() + links.String()
}

// Two nodes and three, over RDMA, over TCP, and both.
var (
	four     = cabling{pairs: "ab", each: 4, link: "rate 100MB latency 20us"}
	two      = cabling{pairs: "ab", each: 2, link: "rate 200MB latency 20us"}
	fourTCP  = cabling{pairs: "ab", each: 4, plain: "ab"}
	twoMixed = cabling{pairs: "ab bc ca", each: 2, plain: "c"}
)

// progress is what the driver says of how far it is: in a soak with --progress, of each size of a collective, and of each phase of
// one-sided communication.
const progress = `^# soak: \d+ s, |^ +\d+ +\d+ |GIN: phase \d+ begins$`

// moves waits until the first rank says how far it is once more.
func (j *job) moves() {
	j.f.t.Helper()
	r := j.ranks[0]
	said := r.count(progress)
	for deadline := time.Now().Add(patience); r.count(progress) == said; time.Sleep(time.Millisecond) {
		select {
		case <-r.over:
			j.fatalf("node %s ended before it could be disturbed", r.node)
		default:
		}
		if time.Now().After(deadline) {
			j.fatalf("node %s did nothing in %v", r.node, patience)
		}
	}
}

// suffer does things to the fabric of a job: "moves" waits until the job has moved on, and all else is for the mesh.
func (j *job) suffer(faults ...string) {
	j.f.t.Helper()
	for _, fault := range faults {
		if fault == "moves" {
			j.moves()
		} else {
			j.f.suffer(fault)
		}
	}
}

// suffer does things to the mesh: "ip NODE ..." runs ip there, and all else is for fakefault.
func (f *mesh) suffer(faults ...string) {
	f.t.Helper()
	for _, fault := range faults {
		words := strings.Fields(fault)
		if words[0] != "ip" {
			f.fault(words...)
			continue
		}
		if out, err := f.command(words[1], "ip", words[2:]...).CombinedOutput(); err != nil {
			f.t.Fatalf("%s: %v: %s", fault, err, out)
		}
	}
}

// off waits until interfaces of a node have no carrier: the fabric takes its time to tell the kernel.
func (f *mesh) off(node string, netdevs ...string) {
	f.t.Helper()
	for _, netdev := range netdevs {
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			out, err := f.command(node, "ip", "link", "show", netdev).CombinedOutput()
			if err != nil {
				f.t.Fatalf("%v: %s", err, out)
			}
			if !strings.Contains(string(out), "LOWER_UP") {
				break
			}
			if time.Now().After(deadline) {
				f.t.Fatalf("%s of %s still has a carrier: %s", netdev, node, out)
			}
		}
	}
}

// half is what a rank tells of its end of a connection; of one to itself it has both ends, with the same name.
type half struct {
	node, conn string
	ends       int
	lanes      []string
	lost       []string // once for each end
	left       []int    // how many lanes there were after each that was lost
	back       int      // lanes that have come back
	relieved   int      // lanes that a better way made needless
}

// between reports whether the connection is one of different nodes.
func (h *half) between() bool {
	from, rest, _ := strings.Cut(h.conn, " -> ")
	return !strings.HasPrefix(rest, from+" ")
}

var (
	madeLine     = regexp.MustCompile(`INFO NET/Mesh : (\S+ -> \S+ conn \d+): (lane \d+ .*)$`)
	backConn     = regexp.MustCompile(`NET/Mesh : (\S+ -> \S+ conn \d+): `)
	backLine     = regexp.MustCompile(`NCCL (?:WARN|INFO) NET/Mesh : \S+ -> \S+ conn \d+: lane \d+ \S+ -> \S+(?: through [^;]*)? (?:has come back|takes the place of [^;]*) after \S+; traffic goes over \d+ lanes?$`)
	laneName     = regexp.MustCompile(`lane \d+ \S+ -> \S+`)
	lostLine     = regexp.MustCompile(`NCCL (?:WARN|INFO) NET/Mesh : [^:]+: (\S+ -> \S+ conn \d+): (lane \d+ \S+ -> \S+?)(?: through [^:;]*)?: .*; (?:its traffic goes over the (\d+) lanes? left|no lane is left: .*)$`)
	relievedLine = regexp.MustCompile(`NCCL INFO NET/Mesh : (?:\S+ says: )?(\S+ -> \S+ conn \d+): lane \d+ .* is no longer needed: `)                                                                                                               // it had taken the place of one that was lost, or joined
	portLine     = regexp.MustCompile(`NCCL WARN NET/Mesh : ((port went down; check the cable|device failed) |\S+ and \S+ talk over TCP, |data port: refused a connection; |control: refused a connection; .* reason="not authenticated in time")`) // of a lane or a link that was given up on the way, too
)

// halves are the ends of all connections, in the order of their making. There are no warnings but those of lanes and ports.
func (j *job) halves() (all []*half) {
	j.f.t.Helper()
	for _, r := range j.ranks {
		find := func(conn string) *half {
			i := slices.IndexFunc(all, func(h *half) bool { return h.node == r.node && h.conn == conn })
			if i < 0 {
				i = len(all)
				all = append(all, &half{node: r.node, conn: conn})
			}
			return all[i]
		}
		for line := range strings.Lines(r.output()) {
			line = strings.TrimSuffix(line, "\n")
			if m := relievedLine.FindStringSubmatch(line); m != nil {
				find(m[1]).relieved++
			} else if m := lostLine.FindStringSubmatch(line); m != nil {
				h := find(m[1])
				n, _ := strconv.Atoi(m[3]) // 0 when there is none
				h.lost, h.left = append(h.lost, m[2]), append(h.left, n)
			} else if backLine.MatchString(line) {
				find(backConn.FindStringSubmatch(line)[1]).back++
			} else if m := madeLine.FindStringSubmatch(line); m != nil && !strings.HasSuffix(line, " has joined") {
				h := find(m[1])
				h.ends++
				h.lanes = laneName.FindAllString(m[2], -1)
			} else if strings.Contains(line, "NCCL WARN") && !portLine.MatchString(line) {
				j.errorf("node %s says %q", r.node, line)
			}
		}
	}
	return all
}

// unbroken fails the test if a rank has said that a lane was lost.
func (j *job) unbroken() {
	j.f.t.Helper()
	for _, r := range j.ranks {
		if n := r.count(lostLine.String()); n != 0 {
			j.errorf("node %s lost %d lanes", r.node, n)
		}
	}
}

// lost fails the test unless what the ends of connections say of lanes that were lost can be, and returns how many were. An end that
// was not set up when a lane failed, or no more, says less.
func (j *job) lost() int {
	j.f.t.Helper()
	lanes := map[string]bool{}
	for _, h := range j.halves() {
		if h.ends == 0 {
			continue
		}
		for i, n := range h.left {
			if h.between() && n > len(h.lanes) { // one may have joined over another network; a node reaches itself over more ways than it has cables
				j.errorf("node %s, %s: %d lanes are left after lane %d of %d that was lost", h.node, h.conn, n, i, len(h.lanes))
			}
		}
		if h.between() && h.back > len(h.lost)+h.relieved {
			j.errorf("node %s, %s: %d lanes have come back, and %d were lost or needed no more", h.node, h.conn, h.back, len(h.lost)+h.relieved)
		}
		for _, lane := range h.lost {
			lanes[h.conn+" "+lane] = true
		}
	}
	return len(lanes)
}

// lose fails the test unless every connection of different nodes lost lanes of just the paths that match, and those of a node with itself
// no others. The index of a lane says nothing: one that comes back takes whatever place is free.
func (j *job) lose(pattern string) {
	j.f.t.Helper()
	match := regexp.MustCompile(pattern)
	paths := func(lanes []string) (all []string) {
		for _, lane := range lanes {
			all = append(all, strings.SplitN(lane, " ", 3)[2])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	n := 0
	for _, h := range j.halves() {
		if h.ends == 0 {
			continue
		}
		lost := paths(h.lost)
		want := slices.DeleteFunc(paths(h.lanes), func(path string) bool {
			return !match.MatchString(path) || !h.between() && !slices.Contains(lost, path)
		})
		if diff := cmp.Diff(want, lost, cmpopts.EquateEmpty()); diff != "" {
			j.errorf("node %s, %s: paths whose lanes were lost (-want +got):\n%s", h.node, h.conn, diff)
		}
		if h.between() {
			n += len(want)
		}
	}
	if n == 0 {
		j.errorf("no lane matches %q", pattern)
	}
	j.lost()
}
