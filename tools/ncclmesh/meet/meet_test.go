package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/fleet"
)

func TestFind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, env string
		want      Place
		err       string
	}{
		{"torchrun", "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node-a MASTER_PORT=29500", Place{5, 8, 1, "node-a"}, ""},
		{"Open MPI", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=10.0.0.1", Place{0, 2, 0, "10.0.0.1"}, ""},
		{"MPICH", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MASTER_ADDR=fd00::1", Place{1, 2, 0, "fd00::1"}, ""},
		{"srun", "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 MASTER_ADDR=a", Place{3, 4, 1, "a"}, ""},
		{"torchrun below srun", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 SLURM_PROCID=0 MASTER_ADDR=a", Place{1, 2, 0, "a"}, ""},
		{"no rank", "MASTER_ADDR=a", Place{}, "this process is no rank"},
		{"no size", "RANK=0 LOCAL_RANK=0 MASTER_ADDR=a", Place{}, `WORLD_SIZE="": want a number up to 65536, as torchrun sets it`},
		{"a rank that is none", "RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", Place{}, `RANK="-1": want a number`},
		{"a rank too high", "RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", Place{}, "RANK=2 and WORLD_SIZE=2: want a rank below"},
		{"no master", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", Place{}, "MASTER_ADDR is not set"},
		{"a master with a port", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a:29500", Place{}, `MASTER_ADDR="a:29500": want it without a port`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Find(func(name string) string {
				for kv := range strings.FieldsSeq(tt.env) {
					if k, v, _ := strings.Cut(kv, "="); k == name {
						return v
					}
				}
				return ""
			})
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// echo answers what it is asked, as rank so-and-so.
func echo(rank int) fleet.Handlers {
	return fleet.Handlers{"echo": func(_ context.Context, q *fleet.Question) error {
		var what string
		return errors.Join(q.With(&what), q.Answer(fmt.Sprintf("%d %s", rank, what)))
	}}
}

// job is a meeting of ranks on this machine.
type job struct {
	*Meeting
	all  sync.WaitGroup
	errs []error // of the ranks
}

// newJob opens a meeting and has these ranks attend it, of as many as there should be.
func newJob(t *testing.T, size int, attend []Place, key string, keys map[int]string) *job {
	t.Helper()
	m, err := Open(Place{Size: size, Master: "127.0.0.1"}, 0, key)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{Meeting: m, errs: make([]error, size)}
	for _, p := range attend {
		p.Size, p.Master = size, "127.0.0.1"
		k, other := keys[p.Rank]
		if !other {
			k = key
		}
		j.all.Go(func() { j.errs[p.Rank] = Attend(context.Background(), p, j.port(), k, 30*time.Second, echo(p.Rank)) })
	}
	return j
}

// ask asks a host something, and returns its answer.
func (j *job) ask(host, what string) (string, error) {
	f := &fleet.Fleet{Dial: j.Dial}
	c := f.Start(context.Background(), host, fleet.Request{Do: "echo", With: what})
	defer c.Close()
	var answer string
	if err := c.Next(&answer); err != nil {
		return "", err
	}
	if err := c.Next(&answer); err != io.EOF {
		return "", err
	}
	return answer, nil
}

// Every node answers any number of questions, at once and one after another, and ends when rank 0 wants no more.
func TestMeeting(t *testing.T) {
	t.Parallel()
	j := newJob(t, 4, []Place{{Rank: 1, Local: 1}, {Rank: 2}, {Rank: 3}}, "secret", nil)
	names, err := j.Hosts(context.Background(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	// All are on one machine here.
	if d := cmp.Diff([]string{fleet.Here, "rank-2", "rank-3"}, names); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			rank := 2 + i%2
			got, err := j.ask(rankName(rank), fmt.Sprint(i))
			if want := fmt.Sprintf("%d %d", rank, i); got != want || err != nil {
				t.Errorf("answer %q and %v, want %q", got, err, want)
			}
		})
	}
	all.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	j.all.Wait()
	if err := errors.Join(j.errs...); err != nil {
		t.Error(err)
	}
}

// Who has not come, or is not believed, is named; the others are asked.
func TestAbsent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		attend []Place
		keys   map[int]string
		want   string // of rank 2
		theirs string // its own error
	}{
		{"not started", []Place{{Rank: 1}}, nil, "it did not connect to 127.0.0.1 (MASTER_ADDR)", ""},
		{"another key", []Place{{Rank: 1}, {Rank: 2}}, map[int]string{2: "other"}, "has another NCCL_MESH_KEY, or none", "rank 0 has gone, or refused rank 2"},
		{"no key", []Place{{Rank: 1}, {Rank: 2}}, map[int]string{2: ""}, "has another NCCL_MESH_KEY, or none", "rank 0 has gone, or refused rank 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, 3, tt.attend, "secret", tt.keys)
			for came := false; !came; { // and who is sent away has been
				if _, err := j.Hosts(context.Background(), 10*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				j.mu.Lock()
				came = j.ranks[1] != nil && (len(tt.keys) == 0 || j.refused != nil)
				j.mu.Unlock()
			}
			names := j.names()
			if d := cmp.Diff([]string{fleet.Here, "rank-1", "rank-2"}, names); d != "" {
				t.Fatalf("(-want +got)\n%s", d)
			}
			if got, err := j.ask(names[1], "x"); got != "1 x" || err != nil {
				t.Errorf("answer %q and %v", got, err)
			}
			_, err := j.ask("rank-2", "x")
			if at := (*fleet.HostError)(nil); !errors.As(err, &at) || at.Host != "rank-2" || !errors.Is(err, fleet.ErrUnreachable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			j.all.Wait()
			if j.errs[1] != nil {
				t.Errorf("rank 1: %v", j.errs[1])
			}
			if err := j.errs[2]; tt.theirs != "" && (err == nil || !strings.Contains(err.Error(), tt.theirs)) {
				t.Errorf("rank 2: %v, want %q", err, tt.theirs)
			}
		})
	}
}

// Strangers that say nothing, or anything, keep nobody out, and are none of the ranks.
func TestStrangers(t *testing.T) {
	t.Parallel()
	j := newJob(t, 2, nil, "", nil)
	for i := range 2 * waiting {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", j.port()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		said := []string{"", "GET / HTTP/1.0\r\n\r\n", `{"rank":1,"host":"a"}` + "\n", strings.Repeat("x", maxLine+1)}[i%4]
		if _, err := io.WriteString(c, said); err != nil {
			t.Log(err) // it has been sent away already
		}
	}
	j.all.Go(func() {
		j.errs[1] = Attend(context.Background(), Place{Rank: 1, Size: 2, Master: "127.0.0.1"}, j.port(), "", time.Minute, echo(1))
	})
	names, err := j.Hosts(context.Background(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := j.ask(names[1], "x"); got != "1 x" || err != nil {
		t.Errorf("answer %q and %v from %s", got, err, names[1])
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	j.all.Wait()
	if j.errs[1] != nil {
		t.Error(j.errs[1])
	}
}

// A rank that finds nobody, or another program, says so.
func TestNobody(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, `{"meet":"something"}`+"\n")
			_ = c.Close()
		}
	}()
	p := Place{Rank: 1, Size: 2, Master: "127.0.0.1"}
	err = Attend(context.Background(), p, l.Addr().(*net.TCPAddr).Port, "", time.Second, nil)
	if err == nil || !strings.Contains(err.Error(), `answers "something", not "ncclmesh.meet/1"`) {
		t.Errorf("another program: %v", err)
	}
	err = Attend(context.Background(), p, 1, "", 10*time.Millisecond, nil)
	if err == nil || !strings.Contains(err.Error(), "rank 1 has not found rank 0 at 127.0.0.1:1 (MASTER_ADDR and --rank-port)") {
		t.Errorf("nobody: %v", err)
	}
}
