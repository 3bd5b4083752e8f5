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

func (c *codec) settings(settings *[]Setting) { list(c, "settings", settings, MaxSettings, c.setting) }

func (c *codec) setting(s *Setting) {
	c.text("name of a setting", &s.Name, MaxName)
	c.text("value of a setting", &s.Value, MaxReason)
	c.atMost("rule of a setting", (*uint8)(&s.Rule), uint8(RuleSame))
	c.text("ports left out", &s.LeftOut, MaxText)
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
