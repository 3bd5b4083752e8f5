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

// hide gives each finding that another explains its cause: one of a check that comes before,
// at a place that covers one of its own. The first of the checks in the order of Checks is
// the cause that people see, as it is nobody's consequence itself: Checks has causes first.
func hide(found []Finding) {
	before := map[string][]string{}
	for _, c := range Checks {
		before[c.ID] = causes(c)
	}
	for i := range found {
		f := &found[i]
		for j := range found {
			g := &found[j]
			if (g.Severity == Fail || g.Severity == Warn) && g.Cause == "" && slices.Contains(before[f.Check], g.Check) && overlap(g.Places, f.Places) {
				f.Cause = g.Check
				break
			}
		}
	}
}

// overlap reports whether what is at some places may explain what is at others.
func overlap(cause, consequence []Place) bool {
	return slices.ContainsFunc(cause, func(p Place) bool { return slices.ContainsFunc(consequence, p.covers) })
}
