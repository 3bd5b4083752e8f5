package handshake

import (
	"strings"
	"testing"

	"ncclmesh/printable"

	"github.com/google/go-cmp/cmp"
)

func TestDifferences(t *testing.T) {
	same := func(name, value string) Setting { return Setting{Name: name, Value: value, Rule: RuleSame} }
	long := strings.Repeat("x", MaxReason)
	tests := []struct {
		name         string
		ours, theirs []Setting
		want         []Difference
	}{
		{"none told", nil, nil, nil},
		{"equal", []Setting{same("A", "1"), same("B", "")}, []Setting{same("B", ""), same("A", "1")}, nil},
		{"one has a value", []Setting{same("A", "1"), same("B", "")}, []Setting{same("A", "1"), same("B", "2")}, []Difference{{"B", "", "2", RuleSame}}},
		{"both have", []Setting{same("A", "1"), same("B", "3")}, []Setting{same("A", "4"), same("B", "2")},
			[]Difference{{"A", "1", "4", RuleSame}, {"B", "3", "2", RuleSame}}},
		{"a peer that tells nothing", []Setting{same("A", "1")}, nil, nil},
		{"a peer that tells of more", []Setting{same("A", "1")}, []Setting{same("A", "1"), same("B", "2")}, nil},
		{"each its own", []Setting{{Name: "A", Value: "1"}}, []Setting{{Name: "A", Value: "2"}}, nil},
		{"settled", []Setting{{Name: "A", Value: "1", Rule: RuleSettled}}, []Setting{{Name: "A", Value: "2", Rule: RuleSettled}},
			[]Difference{{"A", "1", "2", RuleSettled}}},
		{"the stricter rule", []Setting{{Name: "A", Value: "1"}}, []Setting{same("A", "2")}, []Difference{{"A", "1", "2", RuleSame}}},
		{"what the wire cuts off", []Setting{same("A", long+"1")}, []Setting{same("A", printable.Line(long+"2", MaxReason))}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Differences(tt.ours, tt.theirs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What one side finds the other finds too: both refuse, or neither.
func FuzzDifferences(f *testing.F) {
	f.Add("1", uint8(2), "2", uint8(0), true)
	f.Add("", uint8(1), "\x00", uint8(1), false)
	f.Fuzz(func(t *testing.T, a string, ruleA uint8, b string, ruleB uint8, more bool) {
		ours := []Setting{{Name: "A", Value: a, Rule: Rule(ruleA % 3)}}
		theirs := []Setting{{Name: "A", Value: b, Rule: Rule(ruleB % 3)}}
		if more {
			ours = append(ours, Setting{Name: "B", Value: b, Rule: RuleSame})
		}
		overWire := func(s []Setting) []Setting {
			var w codec
			var got []Setting
			w.settings(&s)
			r := codec{b: w.b, reads: true}
			r.settings(&got)
			if _, err := r.done("settings"); w.err != nil || err != nil {
				t.Fatalf("%q: %v, %v", s, w.err, err)
			}
			return got
		}
		here, there := Differences(ours, overWire(theirs)), Differences(theirs, overWire(ours))
		if len(here) != len(there) {
			t.Fatalf("%+v, and from the other side %+v", here, there)
		}
		for i, d := range here {
			if there[i] != (Difference{d.Name, d.Theirs, d.Ours, d.Rule}) {
				t.Errorf("%+v, and from the other side %+v", d, there[i])
			}
		}
	})
}

func TestSettingsOnTheWire(t *testing.T) {
	var w codec
	many := make([]Setting, MaxSettings+1)
	if w.settings(&many); w.err == nil {
		t.Error("more settings than are allowed were written")
	}
	tests := []struct{ name, in, want string }{
		{"too many", "41", "65 settings, at most 64 are allowed"},
		{"an unknown rule", "01 0001 41 0000 03 0000", "rule of a setting is 3, at most 2 is allowed"},
		{"control characters", "01 0001 41 0001 0a 00 0000", "value of a setting is not plain UTF-8 text: it has control characters or is broken"},
		{"cut short", "02 0001 41 0000 00 0000", errTruncated.Error()},
	}
	for _, tt := range tests {
		r := codec{b: unhex(t, tt.in), reads: true}
		if r.settings(new([]Setting)); r.err == nil || r.err.Error() != tt.want {
			t.Errorf("%s: error %v, want %q", tt.name, r.err, tt.want)
		}
	}
}

// A node with as many ports as there can be, each with as many addresses as are told, has room for its settings.
func TestSettingsFitAHello(t *testing.T) {
	long := strings.Repeat("x", MaxText)
	h := &Hello{Hostname: long}
	for range MaxPorts {
		h.Ports = append(h.Ports, Port{Device: long, Netdev: long, Addrs: make([]PortAddr, 16)})
	}
	for range 24 {
		h.Settings = append(h.Settings, Setting{Name: long, Value: long, Rule: RuleSame})
	}
	for range 6 {
		h.Settings = append(h.Settings, Setting{Name: long, Value: long, LeftOut: long})
	}
	_, challenge := NewListener(ProcessID{}, nil)
	d, err := NewDialler(ProcessID{}, challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.SayHello(nil, h); err != nil {
		t.Error(err)
	}
}
