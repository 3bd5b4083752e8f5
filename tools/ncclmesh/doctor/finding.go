package doctor

import (
	"strings"
)

// Severity is how bad a finding is.
type Severity string

// Severities, the worst first.
const (
	Fail    Severity = "fail"    // something does not work, or is a fraction of what it should be
	Warn    Severity = "warn"    // it works, and worse than it could, or not for long
	Unknown Severity = "unknown" // nobody could look
	Info    Severity = "info"    // worth knowing; no fault
)

var severities = []Severity{Fail, Warn, Info, Unknown} // in the order that people read

// Place is where a finding is: a node, or a port of it by the name of its interface (or
// device, where it has none).
type Place struct {
	Node string `json:"node"`
	Port string `json:"port,omitempty"`
}

func (p Place) String() string {
	if p.Port == "" {
		return p.Node
	}
	return p.Node + ":" + p.Port
}

// covers reports whether what is found at p may explain what is found at q.
func (p Place) covers(q Place) bool { return p.Node == q.Node && (p.Port == "" || p.Port == q.Port) }

// A Finding is what a check has to say of some places.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Places   []Place  `json:"places"`
	Cable    string   `json:"cable,omitempty"` // where it is one's: its ends, by their cages
	Evidence string   `json:"evidence"`
	Remedy   string   `json:"remedy,omitempty"`
	Cause    string   `json:"cause,omitempty"`   // the check that explains it; it is not shown then
	Ignored  bool     `json:"ignored,omitempty"` // as the user asked; it is not shown, and does not count

	setting blamed // that is the fault; none: the zero value
	moot    bool   // it has no effect on anything, so that it explains no other finding
}

// Shown reports whether people are to see it.
func (f *Finding) Shown() bool { return f.Cause == "" && !f.Ignored }

// Where names the cable, or else the places, for people.
func (f *Finding) Where() string {
	if f.Cable != "" {
		return f.Cable
	}
	names := make([]string, len(f.Places))
	if len(names) == 0 {
		return "mesh"
	}
	for i, p := range f.Places {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}
