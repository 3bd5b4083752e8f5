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

const labFigure = "lab-1MiB"

// lab measures between two machines of the lab's triangle, over the kernel's
// rdma_rxe: ib_write_bw is the limit there. An emulated machine may die of its
// emulation; then it is tried once more.
func (b *bench) lab() (result, error) {
	r, err := b.labOnce()
	if errors.Is(err, lab.ErrMachine) {
		fmt.Fprintf(os.Stderr, "%v\nonce more\n", err)
		r, err = b.labOnce()
	}
	return r, err
}

func (b *bench) labOnce() (_ result, err error) {
	progress := lab.NewProgress(os.Stderr)
	images, err := lab.Prepare(b.ctx, filepath.Join(b.build, "lab"), progress)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, images.Close()) }()
	mesh := lab.Triangle()
	l, err := images.Start(b.ctx, mesh, lab.Config{Files: []string{b.plugin(), b.program("plugin")}, Progress: progress})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b.runs += b.o.runs
	outputs, err := l.RunAll(b.ctx, labScript(mesh, b.o.runs))
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
	r := result{Name: labFigure, About: "1 MiB, 8 outstanding, between virtual machines over rdma_rxe; limit: ib_write_bw", Unit: "MB/s", AtLeast: 0.9}
	if r.Runs, err = readLab(outputs[0].Output); err != nil {
		return result{}, err
	}
	if !strings.Contains(outputs[0].Output, "time scale 1\n") {
		r.AtLeast = 0
		r.About += "; emulated, so only reported"
	}
	r.settle()
	fmt.Println(r.line())
	return r, nil
}

// labScript runs both in turn, on nodes a and b. What a program may not know is
// whether the other listens already: ib_write_bw on a tries until it does.
func labScript(mesh lab.Mesh, runs int) string {
	return fmt.Sprintf(`
case $NODE in a) rank=0;; b) rank=1;; *) exit 0;; esac
export NCCL_MESH_RNR_RETRY=0
echo "time scale $NCCL_MESH_TIME_SCALE" # that of an emulated machine is more than 1
perftest="timeout 120 ib_write_bw -d rxe100 -x 1 -u 20 -F -s 1048576 -n 200 -t 8"
for i in $(seq %d); do
	if [ $rank = 0 ]; then
		for try in $(seq 60); do
			sleep 0.5
			$perftest %s >/tmp/out 2>&1; status=$?
			grep -q "Couldn't connect\|Unable to init" /tmp/out || break
		done
	else
		$perftest >/tmp/out 2>&1; status=$?
	fi
	[ $status = 0 ] || { cat /tmp/out; exit 1; }
	[ $rank = 1 ] || grep "^ 1048576 " /tmp/out
	timeout 120 ./plugin --meet %s:7776 --rank $rank --work stream --sizes 1048576 --seconds 1 --plugin ./%s || exit 1
done`, runs, mesh.Cables[0].Ends[1].Addr, mesh.ManagementAddr("a"), lab.PluginFile)
}

// perftest's result: bytes, iterations, peak and average in MiB/s, messages.
var perftestLine = regexp.MustCompile(`^ 1048576\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+`)

// readLab reads what node a printed.
func readLab(output string) ([]pair, error) {
	var runs []pair
	var limit float64
	for line := range strings.Lines(output) {
		if m := perftestLine.FindStringSubmatch(line); m != nil {
			mibs, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, err
			}
			limit = mibs * mib / 1e6
		}
		if strings.HasPrefix(line, "{") {
			var s sample
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if limit == 0 {
				return nil, fmt.Errorf("no result of ib_write_bw before %q in:\n%s", line, output)
			}
			runs = append(runs, pair{Value: megabytes(s), Limit: limit})
			limit = 0
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("node a printed no result:\n%s", output)
	}
	return runs, nil
}
