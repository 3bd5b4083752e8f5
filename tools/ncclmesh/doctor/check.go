package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// A Check looks for one thing that may be wrong. What people see of it, how it is found and
// what to do stands on its page, docs/checks/ID.md.
type Check struct {
	ID      string
	After   []string // checks whose findings explain this one's at the same place
	Several bool     // it compares nodes, and has nothing to say of one alone
	judge   func(*verdict)
}

// verdict is one check at work.
type verdict struct {
	*facts.Mesh
	id    string
	found []Finding
}

// spot is where a finding is.
type spot struct {
	places []Place
	cable  string
}

func (v *verdict) add(s Severity, at spot, remedy, format string, args ...any) {
	v.found = append(v.found, Finding{Check: v.id, Severity: s, Places: at.places, Cable: at.cable, Evidence: fmt.Sprintf(format, args...), Remedy: remedy})
}

// fail, warn and info add a finding; remedy says what to do, in a sentence without a full stop.
func (v *verdict) fail(at spot, remedy, format string, args ...any) {
	v.add(Fail, at, remedy, format, args...)
}

func (v *verdict) warn(at spot, remedy, format string, args ...any) {
	v.add(Warn, at, remedy, format, args...)
}

func (v *verdict) info(at spot, remedy, format string, args ...any) {
	v.add(Info, at, remedy, format, args...)
}

// unknown says why it cannot be told.
func (v *verdict) unknown(at spot, why string) { v.add(Unknown, at, "", "%s", why) }

// on is a node, or ports of it.
func on(n *facts.Node, ports ...string) spot {
	if len(ports) == 0 {
		return both(n.Name)
	}
	at := make([]Place, len(ports))
	for i, p := range ports {
		at[i] = Place{n.Name, p}
	}
	return spot{places: at}
}

// both are nodes as wholes.
func both(names ...string) spot {
	at := make([]Place, len(names))
	for i, name := range names {
		at[i] = Place{Node: name}
	}
	return spot{places: at}
}

// across is a half of a cable, which is named by its cages where they are known.
func (v *verdict) across(a, b facts.End) spot {
	cage := func(e facts.End) facts.End {
		if p := v.port(e); p != nil && p.PhysPort != "" {
			e.Port = p.PhysPort
		}
		return e
	}
	return spot{[]Place{Place(a), Place(b)}, cage(a).String() + " ═ " + cage(b).String()}
}

// each makes a check of what looks at one node.
func each(judge func(*facts.Node, *verdict)) func(*verdict) {
	return func(v *verdict) {
		for i := range v.Nodes {
			judge(&v.Nodes[i], v)
		}
	}
}

// Selection is which checks a user wants.
type Selection struct {
	Only   []string // these alone; all
	Ignore []string // these are made, and not shown
}

// Unknown returns an id that is no check's, and whether there is one.
func (s Selection) Unknown() (id string, found bool) {
	for _, id := range append(slices.Clone(s.Only), s.Ignore...) {
		if !slices.ContainsFunc(Checks, func(c Check) bool { return c.ID == id }) {
			return id, true
		}
	}
	return "", false
}

// Nearest returns the id that the user may have meant: one that has the word in it, or is spelt nearly like it; "" where
// none is.
func Nearest(id string) string {
	id = strings.ToLower(id)
	nearest := slices.MinFunc(Checks, func(a, b Check) int { return cmp.Compare(distance(id, a.ID), distance(id, b.ID)) }).ID
	if distance(id, nearest) > len(id)/3 {
		return ""
	}
	return nearest
}

// distance returns the number of letters to change, add or leave out; a part of the id is near.
func distance(a, b string) int {
	if strings.Contains(b, a) && a != "" {
		return 1
	}
	return levenshtein.ComputeDistance(a, b)
}

// Judge makes the checks, and returns what they found, the worst first, and the checks that were
// made.
func Judge(m *facts.Mesh, s Selection) (found []Finding, made []string) {
	for _, c := range Checks {
		if len(s.Only) > 0 && !slices.Contains(s.Only, c.ID) && !explains(c.ID, s.Only) {
			continue
		}
		if c.Several && len(m.Nodes) < 2 {
			continue
		}
		v := &verdict{Mesh: m, id: c.ID}
		c.judge(v)
		if len(s.Only) == 0 || slices.Contains(s.Only, c.ID) {
			made = append(made, c.ID)
		}
		for _, f := range v.found {
			f.Ignored = slices.Contains(s.Ignore, c.ID)
			found = append(found, f)
		}
	}
	hide(found)
	if len(s.Only) > 0 { // the causes were needed only to hide
		found = slices.DeleteFunc(found, func(f Finding) bool { return !slices.Contains(s.Only, f.Check) })
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return found, made
}

// explains reports whether a check is among the causes of others.
func explains(id string, others []string) bool {
	for _, c := range Checks {
		if slices.Contains(others, c.ID) && slices.Contains(causes(c), id) {
			return true
		}
	}
	return false
}
