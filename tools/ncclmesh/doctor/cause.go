package doctor

import "slices"

// causes are the checks whose findings may explain one's, however indirectly.
func causes(c Check) []string {
	var all []string
	var follow func(ids []string)
	follow = func(ids []string) {
		for _, id := range ids {
			if slices.Contains(all, id) {
				continue
			}
			all = append(all, id)
			if i := slices.IndexFunc(Checks, func(c Check) bool { return c.ID == id }); i >= 0 {
				follow(Checks[i].After)
			}
		}
	}
	follow(c.After)
	return all
}

// hide gives each finding that another explains its cause: one of a check that comes before, at a place that covers one of its
// own, and that is no less bad. A warning about a node as a whole explains nothing at its ports: that something is not as it
// should be somewhere on the node is no proof of where else it shows. What explains a finding may be explained itself: then people
// see the first cause. The findings are in the order of Checks, which has causes first.
func hide(found []Finding) {
	after := map[string][]string{}
	for _, c := range Checks {
		after[c.ID] = c.After
	}
	first := make([]int, len(found)) // cause of each, itself where it has none
	for i := range found {
		f := &found[i]
		first[i] = i
		if f.Cause != "" { // which the check itself has found out
			continue
		}
		for j := range found[:i] {
			g, root := &found[j], &found[first[j]]
			bad := root.Severity == Fail || root.Severity == Warn && f.Severity != Fail
			if bad && !g.moot && slices.Contains(after[f.Check], g.Check) && g.explains(f, root.Severity) {
				first[i], f.Cause = first[j], root.Check
				break
			}
		}
	}
}

// explains reports whether what is found at some places, and is as bad as that, may be why the other is found at its own.
func (f *Finding) explains(other *Finding, bad Severity) bool {
	return slices.ContainsFunc(f.Places, func(p Place) bool {
		return slices.ContainsFunc(other.Places, func(q Place) bool { return p.covers(q) && (bad == Fail || p.Port != "" || q.Port == "") })
	})
}
