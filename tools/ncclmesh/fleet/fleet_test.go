package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

// TestMain is an agent too: hosts of these tests are this program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, testHandlers); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type sum struct{ A, B int }

var testHandlers = Handlers{
	"sum": func(_ context.Context, q *Question) error {
		var s sum
		if err := q.With(&s); err != nil {
			return err
		}
		return errors.Join(q.Answer(s.A), q.Answer(s.B), q.Answer(s.A+s.B))
	},
	"echo": func(_ context.Context, q *Question) error {
		for {
			var word string
			if err := q.Hear(&word); err != nil {
				return err
			}
			if word == "" {
				return nil
			}
			if err := q.Answer(word); err != nil {
				return err
			}
		}
	},
	"fail": func(_ context.Context, q *Question) error {
		return errors.Join(q.Answer(1), errors.New("no port is up"))
	},
	"wait": func(ctx context.Context, q *Question) error {
		if err := q.Answer(os.Getpid()); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	},
	"flood": func(_ context.Context, q *Question) error {
		for {
			if err := q.Answer(strings.Repeat("x", 1<<10)); err != nil {
				return err
			}
		}
	},
	"huge": func(_ context.Context, q *Question) error { return q.Answer(strings.Repeat("x", maxLine)) },
	"die": func(context.Context, *Question) error {
		fmt.Fprintln(os.Stderr, "panic: by accident")
		os.Exit(3)
		return nil
	},
}

// hosts are what the shell makes of the names of hosts: $0 is one, $1 and $2 are ncclmesh agent.
const hosts = `
case $0 in
good*) exec "$SELF" "$2" ;;
prompt) printf 'host$ '; exec "$SELF" "$2" ;;
motd) echo Welcome; echo '{"not": "a hello"}'; exec "$SELF" "$2" ;;
refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
mute) exit 255 ;;
unknown) echo "ssh: Could not resolve hostname unknown: Name or service not known" >&2; exit 255 ;;
keyless) echo "me@keyless: Permission denied (publickey,password)." >&2; exit 255 ;;
new) echo "Host key verification failed." >&2; exit 255 ;;
changed) echo "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @" >&2; echo "Host key for changed has changed and you have requested strict checking." >&2; echo "Host key verification failed." >&2; exit 255 ;;
absent) echo "sh: 1: ncclmesh: not found" >&2; exit 127 ;;
older) echo 'ncclmesh: unknown command "agent" for "ncclmesh"' >&2; exit 2 ;;
hangs) exec sleep 100 ;;
other) echo '{"hello":{"schema":"ncclmesh.agent/9","build":"9.9","protocol":12}}'; exec sleep 100 ;;
hello) echo '{"hello":12}'; exec sleep 100 ;;
garbled) echo '{"hello":{"schema":"ncclmesh.agent/1","build":"1","protocol":4}}'; echo '{"answer":1}'; echo '{"answer"'; exec sleep 100 ;;
two) echo '{"hello":{"schema":"ncclmesh.agent/1","build":"1","protocol":4}}'; echo '{"answer":1,"end":{}}'; exec sleep 100 ;;
wrong) echo '{"hello":{"schema":"ncclmesh.agent/1","build":"1","protocol":4}}'; echo '{"answer":"text"}'; exec sleep 100 ;;
noise) exec yes ;;
esac
`

func testFleet(t *testing.T) *Fleet {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Fleet{SSH: []string{"sh", "-c", hosts}, Here: self, Env: append(os.Environ(), "SELF="+self, "GORACE=atexit_sleep_ms=0"), Hello: 2 * time.Minute}
}

// Each host that has a trouble has one error of its own, which names it, and no other host suffers.
func TestTroubles(t *testing.T) {
	t.Parallel()
	f := testFleet(t)
	tests := []struct {
		host  string
		want  error
		words []string
	}{
		{"good1", nil, nil},
		{"motd", nil, nil},
		{"prompt", nil, nil},
		{Here, nil, nil},
		{"refused", ErrUnreachable, []string{"refused: cannot be reached", "Connection refused", "255", "; start sshd on refused"}},
		{"mute", ErrUnreachable, []string{"and no message", "; run that command by hand"}},
		{"unknown", ErrUnreachable, []string{"Name or service not known", "; correct the name, or add unknown to ~/.ssh/config or /etc/hosts"}},
		{"keyless", ErrUnreachable, []string{"; copy your key there: ssh-copy-id keyless"}},
		{"new", ErrUnreachable, []string{"; accept its host key once: ssh new true"}},
		{"changed", ErrUnreachable, []string{"; find out why its host key changed, then run ssh-keygen -R changed"}},
		{"absent", ErrNoAgent, []string{"not found", "; install it on absent, or give --push"}},
		{"older", ErrNoAgent, []string{"older than this one", "--push"}},
		{"other", ErrVersion, []string{"build 9.9", "ncclmesh.agent/9", Schema}},
		{"hello", ErrGarbled, nil},
		{"garbled", ErrGarbled, []string{`{\"answer\"`}},
		{"two", ErrGarbled, []string{errNotOne.Error()}},
		{"wrong", ErrGarbled, []string{"cannot unmarshal string"}},
		{"noise", ErrLimit, []string{"no hello"}},
	}
	var names []string
	for _, tt := range tests {
		names = append(names, tt.host)
	}
	for i, r := range ask[int](t.Context(), f, names, Request{Do: "sum", With: sum{1, 2}, Silence: 2 * time.Minute}) {
		tt := tests[i]
		if r.Host != tt.host || !errors.Is(r.Err, tt.want) || (r.Err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", r.Host, r.Err, tt.want)
		}
		if tt.want == nil {
			if diff := cmp.Diff([]int{1, 2, 3}, r.Answers); diff != "" {
				t.Errorf("%s answers (-want +got):\n%s", r.Host, diff)
			}
			if diff := cmp.Diff(Hello{Schema, handshake.Build(), handshake.Version}, r.Hello); diff != "" {
				t.Errorf("%s says hello (-want +got):\n%s", r.Host, diff)
			}
			continue
		}
		said := r.Err.Error()
		if at := new(HostError); !errors.As(r.Err, &at) || at.Host != tt.host || strings.Contains(said, "\n") || !strings.HasPrefix(said, tt.host+": ") {
			t.Errorf("%s: %q is not one line that begins with it", tt.host, said)
		}
		for _, want := range tt.words {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q lacks %q", tt.host, said, want)
			}
		}
	}
}

// A host that hangs is not waited for.
func TestHangs(t *testing.T) {
	t.Parallel()
	f := testFleet(t)
	f.Hello = 100 * time.Millisecond
	r := ask[int](t.Context(), f, []string{"hangs"}, Request{Do: "sum"})[0]
	if want := "hangs: does not answer: no hello within 100ms"; !errors.Is(r.Err, ErrSilent) || r.Err.Error() != want {
		t.Errorf("%v, want %q", r.Err, want)
	}
}

// What goes wrong here is told as this node's.
func TestHereFails(t *testing.T) {
	t.Parallel()
	r := ask[int](t.Context(), &Fleet{Here: "/does/not/exist"}, []string{Here}, Request{Do: "sum"})[0]
	if want := "this node: cannot be reached: "; r.Err == nil || !strings.HasPrefix(r.Err.Error(), want) {
		t.Errorf("%v, want %q", r.Err, want)
	}
}

// What a handler does wrong is told as what it is.
func TestHandlers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		request Request
		answers int
		want    error // nil: an AgentError
		words   string
	}{
		{"unknown", Request{Do: "dance"}, 0, nil, `does not know the request "dance", only die, echo, fail,`},
		{"an unknown member", Request{Do: "sum", With: map[string]int{"C": 1}}, 0, nil, `unknown field "C"`},
		{"fails", Request{Do: "fail"}, 1, nil, "good: no port is up"},
		{"silent", Request{Do: "wait", Silence: 3 * time.Second}, 1, ErrSilent, "no message for 3s"},
		{"too much", Request{Do: "flood", Limit: 10 << 10}, 9, ErrLimit, "10 KiB"},
		{"too long", Request{Do: "huge"}, 0, nil, "can be sent"},
		{"dies", Request{Do: "die"}, 0, ErrEnded, "by accident"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := ask[any](t.Context(), testFleet(t), []string{"good"}, tt.request)[0]
			if tt.want == nil && !errors.As(r.Err, new(*AgentError)) || tt.want != nil && !errors.Is(r.Err, tt.want) {
				t.Errorf("%v, want %v", r.Err, tt.want)
			}
			if r.Err == nil || !strings.Contains(r.Err.Error(), tt.words) || len(r.Answers) != tt.answers {
				t.Errorf("%d answers and %v, want %d and %q", len(r.Answers), r.Err, tt.answers, tt.words)
			}
		})
	}
}

// A handler may be told more while it works, and ends when its asker goes.
func TestConversation(t *testing.T) {
	t.Parallel()
	c := testFleet(t).Start(t.Context(), "good", Request{Do: "echo"})
	defer c.Close()
	for _, word := range []string{"one", "two", ""} {
		if err := c.Say(word); err != nil {
			t.Fatal(err)
		}
		var got string
		switch err := c.Next(&got); {
		case word == "" && err == io.EOF:
		case err != nil || got != word:
			t.Errorf("%q, %v, want %q", got, err, word)
		}
	}
	c.Close()
	if err := c.Say("more"); err == nil {
		t.Error("a host hears what is said when all is over")
	}
}

// An agent whose asker goes away ends, and a call that is given up is over at once.
func TestGone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := testFleet(t).Start(ctx, "good", Request{Do: "wait"})
	var pid int
	if err := c.Next(&pid); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := c.Next(&pid); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	c.Close()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Errorf("process %d has outlived its asker", pid)
	}
}

// A pushed program runs there, and nothing of it is left, whether or not its handler ends by itself.
func TestPush(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := testFleet(t)
	f.Push = f.Here
	f.SSH = []string{"env", "TMPDIR=" + dir, "sh", "-c", `exec "$@"`}
	c := f.Start(t.Context(), "away", Request{Do: "wait"})
	var pid int
	if err := c.Next(&pid); err != nil {
		t.Fatal(err)
	}
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil || filepath.Dir(filepath.Dir(program)) != dir {
		t.Errorf("it runs %s, %v, which is not below %s", program, err, dir)
	}
	if info, err := os.Stat(filepath.Dir(program)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
	c.Close()
	if r := ask[int](t.Context(), f, []string{"away"}, Request{Do: "sum", With: sum{1, 2}})[0]; r.Err != nil {
		t.Error(r.Err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}

// Where programs may not run in the directory for temporary files, a pushed program runs in another; where they run nowhere, or
// what unpacks it is not there, that is told with what to do.
func TestPushIntoNoexec(t *testing.T) {
	t.Parallel()
	const deny = "case $2 in %s*) exit 0 ;; esac\nexec /bin/chmod \"$@\"\n" // as in a file system that is mounted noexec
	tests := []struct {
		name, tool, script string
		want               string // "": it runs
	}{
		{"there", "chmod", deny, ""},
		{"everywhere", "chmod", "exit 0\n", "away: has no agent: this program was copied there, and does not run (--push: programs may run in none of TMPDIR, /var/tmp, HOME, /dev/shm); " +
			"name a directory there in TMPDIR (SetEnv in ~/.ssh/config), or install ncclmesh on away"},
		{"no base64", "base64", "echo 'sh: 3: base64: not found' >&2; exit 127\n", "away: has no agent: this program was copied there, and does not run (sh: 3: base64: not found); install ncclmesh on away"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, home, bin := t.TempDir(), t.TempDir(), t.TempDir()
			script := "#!/bin/sh\n" + strings.ReplaceAll(tt.script, "%s", dir)
			if err := os.WriteFile(filepath.Join(bin, tt.tool), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			f := testFleet(t)
			f.Push = f.Here
			f.SSH = []string{"env", "TMPDIR=" + dir, "HOME=" + home, "XDG_RUNTIME_DIR=", "PATH=" + bin + ":" + os.Getenv("PATH"), "sh", "-c", `exec "$@"`}
			r := ask[int](t.Context(), f, []string{"away"}, Request{Do: "sum", With: sum{1, 2}})[0]
			got := ""
			if r.Err != nil {
				got = strings.NewReplacer(dir, "TMPDIR", home, "HOME").Replace(r.Err.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, d := range []string{dir, home} {
				if left, err := os.ReadDir(d); len(left) > 0 || err != nil {
					t.Errorf("%v is left, %v", left, err)
				}
			}
		})
	}
}

// What cannot be pushed is told at once.
func TestPushWrongly(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, file, uname, words string }{
		{"no file", "/no/such", "", "no such file"},
		{"no program", text, "", "is no program"},
		{"another machine", "", "riscv64", "this host is riscv64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := testFleet(t)
			if f.Push = tt.file; f.Push == "" {
				f.Push = f.Here
			}
			f.SSH = []string{"sh", "-c", `uname() { echo ` + tt.uname + `; }; . /dev/stdin`}
			r := ask[int](t.Context(), f, []string{"away"}, Request{Do: "sum"})[0]
			if r.Err == nil || !strings.Contains(r.Err.Error(), tt.words) {
				t.Errorf("%v, want %q", r.Err, tt.words)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		hosts []string
		want  string
	}{
		{[]string{"a", "user@b", "10.0.0.1", "fe80::1%eth0", Here}, ""},
		{[]string{"a", ""}, "want a name"},
		{[]string{"a b"}, "want a name"},
		{[]string{"-oProxyCommand=sh"}, "option"},
		{[]string{"a", "b", "a"}, "named twice"},
	}
	for _, tt := range tests {
		err := Check(tt.hosts)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.hosts, err, tt.want)
		}
	}
	if _, err := Words("  "); err == nil {
		t.Error("a command without a word is one")
	}
}

// A command that is not there is said with what would change that.
func TestNoSuchCommand(t *testing.T) {
	t.Parallel()
	f := &Fleet{SSH: []string{"/no/such/ssh"}}
	r := ask[int](t.Context(), f, []string{"a"}, Request{Do: "sum"})[0]
	if !errors.Is(r.Err, ErrUnreachable) || !strings.HasSuffix(r.Err.Error(), "; correct it: --ssh, or NCCLMESH_SSH, names the command that runs a program on a host") {
		t.Errorf("%v", r.Err)
	}
	if next, why := Reason(r.Err); !strings.HasPrefix(why.Error(), "cannot be reached: ") || !strings.HasPrefix(next, "correct it: ") {
		t.Errorf("%v; %s", why, next)
	}
	absent := &exec.Error{Name: "ssh", Err: exec.ErrNotFound}
	if next, _ := Reason((&Fleet{}).notStarted("a", absent)); !strings.HasPrefix(next, "install ssh's client (apt install openssh-client)") {
		t.Error(next)
	}
}

// No goroutine outlives its calls.
func TestLeaves(t *testing.T) {
	before := runtime.NumGoroutine()
	f := testFleet(t)
	f.Hello = 200 * time.Millisecond
	_ = ask[int](t.Context(), f, []string{"good", "hangs", "garbled", "refused"}, Request{Do: "sum", With: sum{1, 2}})
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// The agent's input is what it is told alone, however much of the script a shell reads at once.
func TestNothingFollowsTheAgent(t *testing.T) {
	if _, behind, ok := strings.Cut(pushRun, `"$d/ncclmesh" agent`); !ok || strings.Index(behind, "\n") != len(behind)-1 {
		t.Errorf("%q follows the start of the agent", behind)
	}
}
