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
// should be somewhere on the node is no proof of where else it shows. The first of the checks in the order of Checks is the cause
// that people see, as it is nobody's consequence itself: Checks has causes first.
func hide(found []Finding) {
	before := map[string][]string{}
	for _, c := range Checks {
		before[c.ID] = causes(c)
	}
	for i := range found {
		f := &found[i]
		for j := range found {
			g := &found[j]
			if (g.Severity == Fail || g.Severity == Warn && f.Severity != Fail) && g.Cause == "" && slices.Contains(before[f.Check], g.Check) && g.explains(f) {
				f.Cause = g.Check
				break
			}
		}
	}
}

// explains reports whether what is found at some places may be why the other is found at its own.
func (f *Finding) explains(other *Finding) bool {
	return slices.ContainsFunc(f.Places, func(p Place) bool {
		return slices.ContainsFunc(other.Places, func(q Place) bool { return p.covers(q) && (f.Severity == Fail || p.Port != "" || q.Port == "") })
	})
}
