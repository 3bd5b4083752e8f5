package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"ncclmesh/tests/lab"
)

// A labFigure is one that takes a kernel of its own. Where machines are emulated
// the processor is the limit, and the target does not count.
type labFigure struct {
	result
	mesh   lab.Mesh                           // of machines
	script string                             // what all of them run; the first one reports
	limit  func(line string) (float64, error) // the limit in a line that it printed, in MB/s; 0: the line is another
}

func (b *bench) labFigures() []labFigure {
	triangle, single := lab.Triangle(), lab.Mesh{Name: "single", Machines: []string{"s"}, CPUs: 2}
	return []labFigure{
		{
			result: result{Name: "lab-1MiB", About: "1 MiB, 8 outstanding, between virtual machines over rdma_rxe", Limit: "ib_write_bw", Unit: "MB/s", AtLeast: 0.9},
			mesh:   triangle, script: rxeScript(triangle, b.o.runs), limit: perftestLimit,
		},
		{
			result: result{Name: "lab-tcp-1MiB", About: "1 MiB over TCP, 8 outstanding, veth of 1 Gb/s and 1 ms that loses 0.1 %", Limit: "iperf3", Unit: "MB/s", AtLeast: 0.9},
			mesh:   single, script: shapedScript(b.o.runs), limit: iperfLimit,
		},
	}
}

// lab measures what is wanted of the lab's figures. An emulated machine may die of
// its emulation; then it is tried once more.
func (b *bench) lab() ([]result, error) {
	var rs []result
	for _, f := range b.labFigures() {
		if !b.o.lab || !b.o.wants(f.Name) {
			continue
		}
		r, err := b.labFigure(f)
		if errors.Is(err, lab.ErrMachine) {
			fmt.Fprintf(os.Stderr, "%v\nonce more\n", err)
			r, err = b.labFigure(f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		fmt.Fprintln(b.out, r.line())
		rs = append(rs, r)
	}
	return rs, nil
}

func (b *bench) labFigure(f labFigure) (_ result, err error) {
	progress := lab.NewProgress(os.Stderr)
	images, err := lab.Prepare(b.ctx, filepath.Join(b.build, "lab"), progress)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, images.Close()) }()
	l, err := images.Start(b.ctx, f.mesh, lab.Config{Files: []string{b.plugin(), b.program("plugin")}, Progress: progress})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b.runs += b.o.runs
	outputs, err := l.RunAll(b.ctx, labScript+f.script)
	if err != nil {
		return result{}, err
	}
	for _, r := range outputs {
		if strings.Contains(r.Output, "RNR") {
			b.rnr++
		}
		if r.Status != 0 {
			return result{}, fmt.Errorf("node %s: status %d:\n%s", r.Machine, r.Status, r.Output)
		}
	}
	r := f.result
	if r.Runs, err = readLab(outputs[0].Output, f.limit); err != nil {
		return result{}, err
	}
	if !strings.Contains(outputs[0].Output, "time scale 1\n") {
		r.AtLeast = 0
		r.About += "; emulated, so only reported"
	}
	r.settle()
	return r, nil
}

// meetScript has meet, which runs a program with its output in $out. What that may
// not know is whether the other end listens already: meet repeats it until it
// does, which shows in what it prints.
const meetScript = `
meet() {
	for try in $(seq 300); do
		out=$("$@" 2>&1); status=$?
		case $out in
		*"nable to connect"* | *"nable to init"* | *"nable to Init"* | *"ouldn't connect"*) sleep 0.1 ;;
		*) break ;;
		esac
	done
	[ $status = 0 ] || { echo "$out"; exit 1; }
}
`

// labScript begins the scripts.
var labScript = meetScript + fmt.Sprintf(`
export NCCL_MESH_RNR_RETRY=0
echo "time scale $NCCL_MESH_TIME_SCALE" # that of an emulated machine is more than 1
plugin="timeout 120 ./plugin --work stream --sizes %d --plugin ./%s"
`, mib, lab.PluginFile)

// rxeScript measures ib_write_bw and the plugin in turn, between a and b.
func rxeScript(mesh lab.Mesh, runs int) string {
	return fmt.Sprintf(`
case $NODE in a) rank=0;; b) rank=1;; *) exit 0;; esac
perftest="timeout 120 ib_write_bw -d rxe100 -x 1 -u 20 -F -s 1048576 -n 200 -t 8"
for i in $(seq %d); do
	if [ $rank = 0 ]; then
		meet $perftest %s
		echo "$out" | grep "^ 1048576 "
	else
		$perftest >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
	fi
	$plugin --meet %s:7776 --rank $rank --seconds 1 || exit 1
done`, runs, mesh.Cables[0].Ends[1].Addr, mesh.ManagementAddr("a"))
}

// shapedScript measures iperf3 and the plugin in turn, between two namespaces, over
// a veth pair that is shaped in both directions. One machine is enough for that,
// and programs that wait actively keep no emulated device from its work.
func shapedScript(runs int) string {
	const seconds = 5
	return fmt.Sprintf(`
on() { ip netns exec "$@"; }
shape() { # NAMESPACE ADDRESS
	ip -n $1 addr add $2 dev p0 && ip -n $1 link set p0 up &&
		tc -n $1 qdisc add dev p0 root netem rate 1gbit delay 500us loss 0.1%% limit 10000
}
ip netns add x && ip netns add y && ip link add p0 netns x mtu 9000 type veth peer name p0 netns y mtu 9000 &&
	shape x 192.168.9.1/24 && shape y 192.168.9.2/24 || exit 1
export NCCL_MESH_TRANSPORT=tcp NCCL_SOCKET_IFNAME=p0 NCCL_MESH_IFNAME=p0
for i in $(seq %[1]d); do
	on y timeout 120 iperf3 -s -1 >/dev/null 2>&1 & server=$!
	meet on x timeout 120 iperf3 -J -c 192.168.9.2 -t %[2]d -l 1M
	wait $server || exit 1
	echo "$out" | tr -d '\n' && echo
	on y $plugin --meet 192.168.9.1:7776 --rank 1 --seconds %[2]d & server=$!
	on x $plugin --meet 192.168.9.1:7776 --rank 0 --seconds %[2]d && wait $server || exit 1
done`, runs, seconds)
}

// perftest's result: bytes, iterations, peak and average in MiB/s, messages.
var perftestLine = regexp.MustCompile(`^ 1048576\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+`)

func perftestLimit(line string) (float64, error) {
	m := perftestLine.FindStringSubmatch(line)
	if m == nil {
		return 0, nil
	}
	mibs, err := strconv.ParseFloat(m[1], 64)
	return mibs * mib / 1e6, err
}

func iperfLimit(line string) (float64, error) {
	if !strings.HasPrefix(line, `{	"start"`) {
		return 0, nil
	}
	return parseIperf([]byte(line))
}

// readLab reads what node a printed: a line with the limit, then the plugin's, run
// after run.
func readLab(output string, limitIn func(string) (float64, error)) ([]pair, error) {
	var runs []pair
	var limit float64
	for line := range strings.Lines(output) {
		switch l, err := limitIn(line); {
		case err != nil:
			return nil, err
		case l > 0:
			limit = l
			continue
		case !strings.HasPrefix(line, "{"):
			continue
		}
		var s sample
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if limit == 0 {
			return nil, fmt.Errorf("no limit before %q in:\n%s", line, output)
		}
		runs = append(runs, pairOf(megabytes(s), limit))
		limit = 0
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("node a printed no result:\n%s", output)
	}
	return runs, nil
}
