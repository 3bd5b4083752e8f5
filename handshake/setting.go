package handshake

import "ncclmesh/printable"

// A Rule says what it means that two processes differ in a setting.
type Rule uint8

const (
	RuleOwn     Rule = 0 // nothing: each process has its own
	RuleSettled Rule = 1 // each goes by its own, and both work; people are told
	RuleSame    Rule = 2 // a job whose ranks differ in it fails or waits for ever
)

// A Setting is an environment variable of a process as its peers are told of it. It is for comparing and for people: what
// a process does for a peer it does by the messages for that.
type Setting struct {
	Name    string
	Value   string // the value that holds; "" where none does
	Rule    Rule
	LeftOut string // names the ports that it leaves out; "" where it leaves out none
}

func (w *writer) settings(settings []Setting) {
	w.count("settings", len(settings), MaxSettings)
	for _, s := range settings {
		w.text(s.Name, MaxName)
		w.text(s.Value, MaxReason)
		w.atMost("rule of a setting", uint8(s.Rule), uint8(RuleSame))
		w.text(s.LeftOut, MaxText)
	}
}

func (r *reader) settings() (settings []Setting) {
	for range r.atMost("number of settings", MaxSettings) {
		s := Setting{
			Name: r.text("name of a setting", MaxName), Value: r.text("value of a setting", MaxReason),
			Rule: Rule(r.atMost("rule of a setting", uint8(RuleSame))), LeftOut: r.text("ports left out", MaxText),
		}
		if r.err != nil {
			return nil
		}
		settings = append(settings, s)
	}
	return settings
}

// A Difference is a setting that two processes have, each with a value of its own.
type Difference struct {
	Name         string
	Ours, Theirs string
	Rule         Rule // the stricter of the two that they have for it
}

// Differences returns the settings in which two processes differ, in the order of ours, except those of RuleOwn. A setting
// that only one of them tells of is none: the other has no use for it. Both processes come to the same result, each from
// its own side.
func Differences(ours, theirs []Setting) (all []Difference) {
	their := make(map[string]Setting, len(theirs))
	for _, s := range theirs {
		their[s.Name] = s
	}
	for _, s := range ours {
		t, ok := their[s.Name]
		value := printable.Line(s.Value, MaxReason) // as the peer sees it
		if rule := max(s.Rule, t.Rule); ok && rule != RuleOwn && value != t.Value {
			all = append(all, Difference{s.Name, value, t.Value, rule})
		}
	}
	return all
}
