package mesh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scenarios returns the texts in a folder of testdata, by file.
func scenarios(t testing.TB, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", dir, err)
	}
	all := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = string(b)
	}
	return all
}

// A text that was formatted reads as the scenario that it was formatted from, and formats as itself.
func TestTextIsKept(t *testing.T) {
	for file, text := range scenarios(t, "text") {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if diff := cmp.Diff(text, s.String()); diff != "" {
			t.Errorf("%s (-read +formatted):\n%s", file, diff)
		}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A person may write a text more loosely than String does.
func TestLooseText(t *testing.T) {
	s, err := Parse("# loose\n\n seed 1\nmachine na\n  machine nb\n# not kept\ncable 0   na nb rdma 100000Mbps latency 2us\n" +
		"connect na nb 2 messages to 1024KiB window 16\nat 1000ms cable 0 loss 12.50%\nexpect end within 60s\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "# loose\nseed 1\nmachine na\nmachine nb\ncable 0 na nb rdma 100Gbps\nconnect na nb 2 messages to 1MiB\nat 1s cable 0 loss 12.5%\nexpect end within 1m0s\n"
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// base is the beginning of a scenario, of seven lines.
const base = "seed 1\nmachine na\nmachine nb\nmachine nc\ncable 0 na nb rdma 100Gbps\nconnect na nb 9 messages to 1KiB\nexpect end within 1m0s\n"

// A mistake is refused with its line, what was written there, and what is accepted.
func TestMistakesAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `the scenario has no line that begins with "connect"`},
		{"machine na\nmachine nb\nconnect na nb 9 messages to 1KiB\nexpect end within 1m\n", `the scenario has no line that begins with "seed"`},
		{base + "boil 3", `line 8: "boil 3": a line begins with seed, machine, cable, management, connect, exchange, at, expect or set`},
		{base + "seed 2", `line 8: "seed 2": a second seed: accepted is one`},
		{"seed -1", `line 1: "seed -1": "-1" is no seed: accepted is a whole number`},
		{base + "machine node1", `line 8: "machine node1": "node1" is no name of a machine: accepted are two small letters or digits, such as na`},
		{base + "machine na", `line 8: "machine na": a second machine na: accepted is one of a name`},
		{base + "management network\nmachine nd", `line 9: "machine nd": a machine after the management network: accepted are machines before it`},
		{base + "management", `line 8: "management": accepted is: management network`},
		{base + "cable 0 na nc tcp 100Gbps", `line 8: "cable 0 na nc tcp 100Gbps": a second cable 0: accepted is one of a number`},
		{base + "cable x na nc tcp 100Gbps", `line 8: "cable x na nc tcp 100Gbps": "x" is no number of a cable: accepted is a number from 0 to 250`},
		{base + "cable 1 na na tcp 100Gbps", `line 8: "cable 1 na na tcp 100Gbps": both ends are na: accepted are two machines`},
		{base + "cable 1 na zz tcp 100Gbps", `line 8: "cable 1 na zz tcp 100Gbps": "zz" is no machine: there are na, nb, nc`},
		{base + "cable 1 na nc udp 100Gbps", `line 8: "cable 1 na nc udp 100Gbps": "udp" is neither rdma nor tcp`},
		{base + "cable 1 na nc tcp fast", `line 8: "cable 1 na nc tcp fast": "fast" is no amount like 100Gbps`},
		{base + "cable 1 na nc tcp 0Mbps", `line 8: "cable 1 na nc tcp 0Mbps": "0Mbps" is out of bounds: accepted is 1Mbps to 10000Gbps`},
		{base + "cable 1 na nc tcp 1Gbps twisted", `line 8: "cable 1 na nc tcp 1Gbps twisted": "twisted" is too much`},
		{base + "set NCCL_MESH_TRANSPORT", `line 8: "set NCCL_MESH_TRANSPORT": accepted is a line like: set NCCL_MESH_TRANSPORT=rdma`},
		{base + "set A=1\nset A=2", `line 9: "set A=2": a second value of A: accepted is one`},
		{base + "connect na nb many messages to 1KiB", `line 8: "connect na nb many messages to 1KiB": "many" is no number of messages: accepted is a number from 1 to 1000000`},
		{base + "connect na nb 9 messages", `line 8: "connect na nb 9 messages": accepted is a line like: connect na nb 200 messages to 1MiB`},
		{base + "connect na nb 9 messages to 1GiB", `line 8: "connect na nb 9 messages to 1GiB": "1GiB" is no amount like 1MiB`},
		{base + "connect na nb 9 messages to 1KiB pauses 101%", `line 8: "connect na nb 9 messages to 1KiB pauses 101%": "101%" is no share of messages: accepted is 0% to 100%`},
		{base + "connect na nb 9 messages to 1KiB ranges 1001", `line 8: "connect na nb 9 messages to 1KiB ranges 1001": "1001" is no number of ranges: accepted is a number from 0 to 1000`},
		{base + "connect na nb 9 messages to 1KiB window 2 group 4", `line 8: "connect na nb 9 messages to 1KiB window 2 group 4": a group of 4 is larger than the window of 2: accepted is a smaller one`},
		{base + "exchange na na 9 operations to 1KiB", `line 8: "exchange na na 9 operations to 1KiB": both ends are na: accepted are two machines`},
		{base + "exchange na nb 0 operations to 1KiB", `line 8: "exchange na nb 0 operations to 1KiB": "0" is no number of operations: accepted is a number from 1 to 1000000`},
		{base + "exchange na nb 9 messages to 1KiB", `line 8: "exchange na nb 9 messages to 1KiB": accepted is a line like: exchange na nb 200 operations to 64KiB`},
		{base + "exchange na nb 9 operations to 1KiB memory mixed", `line 8: "exchange na nb 9 operations to 1KiB memory mixed": "mixed" is no memory of an exchange: accepted is gpu`},
		{base + "at noon cable 0 cut", `line 8: "at noon cable 0 cut": "noon" is no time: accepted is one like 1.5s or 300ms, from 0s to 24h0m0s`},
		{base + "at 1s for 0s cable 0 cut", `line 8: "at 1s for 0s cable 0 cut": "0s" is no time: accepted is one like 1.5s or 300ms, from 1ns to 24h0m0s`},
		{base + "at traffic+1s until traffic+2s cable 0 cut", `line 8: "at traffic+1s until traffic+2s cable 0 cut": accepted after until is traffic+ and a time above 0, of a fault that begins before the traffic`},
		{base + "at 1s cable 7 cut", `line 8: "at 1s cable 7 cut": there is no cable 7`},
		{base + "at 1s moon 7 cut", `line 8: "at 1s moon 7 cut": accepted is a line like: at 1.2s for 300ms cable 0 cut`},
		{base + "at 1s machine na bored", `line 8: "at 1s machine na bored": "bored" is no fault: accepted are late, stopped at call, stopped, killed, loses power`},
		{base + "at 1s cable 0 port off", `line 8: "at 1s cable 0 port off": "port off" needs an end: accepted is at na or at nb`},
		{base + "at 1s cable 0 port off at nc", `line 8: "at 1s cable 0 port off at nc": "nc" is no end of cable 0: accepted is na or nb`},
		{base + "cable 1 na nc tcp 1Gbps\nat 1s cable 1 RDMA off at na", `line 9: "at 1s cable 1 RDMA off at na": cable 1 has no RDMA, and "RDMA off" needs it`},
		{base + "at 1s cable 0 loss 120%", `line 8: "at 1s cable 0 loss 120%": "120%" is no amount like 12.5%`},
		{base + "at 1s cable 0 slow at na 0B/s", `line 8: "at 1s cable 0 slow at na 0B/s": "0B/s" is out of bounds: accepted is 1B/s to 1000GB/s`},
		{base + "at 1ms machine na killed", `line 8: "at 1ms machine na killed": a process dies for good, and not before 60ms, when all have started`},
		{base + "at 1s for 1s machine na killed", `line 8: "at 1s for 1s machine na killed": a process dies for good, and not before 60ms, when all have started`},
		{base + "expect sunshine", `line 8: "expect sunshine": accepted is: expect death of MACHINE, expect calm, expect all grants, expect RDMA, expect end within TIME, expect healed within TIME`},
		{base + "expect death of na", `the death of na is expected, but nothing kills it: add a line like "at 1s machine na killed"`},
	} {
		_, err := Parse(c.text)
		if got := said(err); got != c.want {
			t.Errorf("%q:\nwant %s\ngot  %s", c.text, c.want, got)
		}
	}
}

func said(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// A scenario that has no text is not played.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *Scenario)
		want  string
	}{
		"as it is":               {func(*Scenario) {}, ""},
		"a cable that is not":    {func(s *Scenario) { s.Faults = append(s.Faults, Fault{Cable: 9, Kind: "cut"}) }, "there is no cable 9"},
		"an amount without unit": {func(s *Scenario) { s.Faults = append(s.Faults, Fault{Kind: "cut", Amount: 3}) }, "holds what its text does not say"},
		"an unknown kind":        {func(s *Scenario) { s.Faults = append(s.Faults, Fault{Kind: "gone"}) }, `"gone" is no fault`},
		"a note of two lines":    {func(s *Scenario) { s.Notes = []string{"one\ntwo"} }, `"two": a line begins with`},
	} {
		s, err := Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		c.spoil(s)
		if err := s.Check(); c.want == "" && err != nil || c.want != "" && !strings.Contains(said(err), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
}

// The scenario in the documentation reads as it is written.
func TestDocumentedText(t *testing.T) {
	page, err := os.ReadFile("../../../docs/internals/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```\n# ")
	text, _, found := strings.Cut("# "+text, "```\n")
	if !found {
		t.Fatal("the page has no scenario")
	}
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, s.String()); diff != "" {
		t.Errorf("(-page +formatted):\n%s", diff)
	}
}

// Whatever is read can be formatted, and reads as the same.
func FuzzParse(f *testing.F) {
	for _, text := range scenarios(f, "text") {
		f.Add(text)
	}
	f.Add(base)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}
