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

// A labFigure is one that takes a kernel of its own: it is measured between two
// machines of the lab's triangle.
type labFigure struct {
	result
	emulated float64                            // its AtLeast where machines are emulated; 0: only reported
	script   func(m lab.Mesh, runs int) string  // runs on both nodes; rank is 0 on a, 1 on b
	limit    func(line string) (float64, error) // the limit in a line that a printed, in MB/s; 0: the line is another
}

func labFigures() []labFigure {
	return []labFigure{
		{
			result: result{Name: "lab-1MiB", About: "1 MiB, 8 outstanding, between virtual machines over rdma_rxe; limit: ib_write_bw", Unit: "MB/s", AtLeast: 0.9},
			script: rxeScript, limit: perftestLimit,
		},
		{
			result:   result{Name: "lab-tcp-1MiB", About: "1 MiB over TCP, 8 outstanding, link of 1 Gb/s and 1 ms that loses 0.1 %; limit: iperf3", Unit: "MB/s", AtLeast: 0.9},
			emulated: 0.9, script: shapedScript, limit: iperfLimit,
		},
	}
}

// lab measures what is wanted of the lab's figures. An emulated machine may die of
// its emulation; then it is tried once more.
func (b *bench) lab() ([]result, error) {
	var figures []labFigure
	for _, f := range labFigures() {
		if b.o.wants(f.Name) {
			figures = append(figures, f)
		}
	}
	if !b.o.lab || len(figures) == 0 {
		return nil, nil
	}
	rs, err := b.inLab(figures)
	if errors.Is(err, lab.ErrMachine) {
		fmt.Fprintf(os.Stderr, "%v\nonce more\n", err)
		rs, err = b.inLab(figures)
	}
	return rs, err
}

func (b *bench) inLab(figures []labFigure) (_ []result, err error) {
	progress := lab.NewProgress(os.Stderr)
	images, err := lab.Prepare(b.ctx, filepath.Join(b.build, "lab"), progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, images.Close()) }()
	mesh := lab.Triangle()
	l, err := images.Start(b.ctx, mesh, lab.Config{Files: []string{b.plugin(), b.program("plugin")}, Progress: progress})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var rs []result
	for _, f := range figures {
		r, err := b.labFigure(l, mesh, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		fmt.Println(r.line())
		rs = append(rs, r)
	}
	return rs, nil
}

func (b *bench) labFigure(l *lab.Lab, mesh lab.Mesh, f labFigure) (result, error) {
	b.runs += b.o.runs
	outputs, err := l.RunAll(b.ctx, pairScript+f.script(mesh, b.o.runs))
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
		if r.AtLeast = f.emulated; r.AtLeast == 0 {
			r.About += "; emulated, so only reported"
		}
	}
	r.settle()
	return r, nil
}

// pairScript begins the scripts of figures. What a program may not know is whether
// the other end listens already: meet, on a, repeats one until it does, which shows
// in what it prints.
const pairScript = `
case $NODE in a) rank=0;; b) rank=1;; *) exit 0;; esac
export NCCL_MESH_RNR_RETRY=0
echo "time scale $NCCL_MESH_TIME_SCALE" # that of an emulated machine is more than 1
meet() {
	for try in $(seq 60); do
		"$@" >/tmp/out 2>&1; status=$?
		grep -qi "unable to \(connect\|init\)\|couldn't connect" /tmp/out || break
		sleep 0.5
	done
	[ $status = 0 ] || { cat /tmp/out; exit 1; }
}
`

// plugin is the plugin's turn.
func pluginTurn(mesh lab.Mesh, seconds int) string {
	return fmt.Sprintf("timeout 120 ./plugin --meet %s:7776 --rank $rank --work stream --sizes 1048576 --seconds %d --plugin ./%s || exit 1",
		mesh.ManagementAddr("a"), seconds, lab.PluginFile)
}

// rxeScript measures ib_write_bw and the plugin in turn.
func rxeScript(mesh lab.Mesh, runs int) string {
	return fmt.Sprintf(`
perftest="timeout 120 ib_write_bw -d rxe100 -x 1 -u 20 -F -s 1048576 -n 200 -t 8"
for i in $(seq %d); do
	if [ $rank = 0 ]; then
		meet $perftest %s
		grep "^ 1048576 " /tmp/out
	else
		$perftest >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
	fi
	%s
done`, runs, mesh.Cables[0].Ends[1].Addr, pluginTurn(mesh, 1))
}

// shapedScript measures iperf3 and the plugin in turn, over a cable that is shaped
// in both directions.
func shapedScript(mesh lab.Mesh, runs int) string {
	const seconds = 5
	server := mesh.Cables[0].Ends[1].Addr
	return fmt.Sprintf(`
. /lab/lib.sh
netem r100 rate 1gbit delay 500us loss 0.1%% limit 10000 && trap 'netem_off r100' EXIT || exit 1
export NCCL_MESH_TRANSPORT=tcp NCCL_MESH_IFNAME==r100
for i in $(seq %d); do
	if [ $rank = 0 ]; then
		meet timeout 120 iperf3 -J -c %s -t %d -l 1M
		tr -d '\n' </tmp/out && echo
	else
		timeout 120 iperf3 -s -1 -B %s >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
	fi
	%s
done`, runs, server, seconds, server, pluginTurn(mesh, seconds))
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
		runs = append(runs, pair{Value: megabytes(s), Limit: limit})
		limit = 0
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("node a printed no result:\n%s", output)
	}
	return runs, nil
}
