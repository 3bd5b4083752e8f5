package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// holds returns the value that a setting has on a node, and whether the node tells of it. Of the key it is a print.
func holds(n *facts.Node, name string) (string, handshake.Rule, bool) {
	i := slices.IndexFunc(n.Process.Compared, func(t handshake.Setting) bool { return t.Name == name })
	if i < 0 {
		return "", handshake.RuleOwn, false
	}
	s := n.Process.Compared[i]
	if name == keyVariable {
		s.Value = n.Process.Key
	}
	return s.Value, s.Rule, true
}

// settingsDiffer compares the settings that are meant to be the same on all nodes.
func settingsDiffer(v *verdict) {
	var all []*facts.Node
	for i := range v.Nodes {
		if _, ok := told(&v.Nodes[i], v); ok {
			all = append(all, &v.Nodes[i])
		}
	}
	if len(all) > 0 {
		for _, s := range all[0].Process.Compared {
			v.compare(s.Name, all)
		}
	}
}

// compare compares one setting. A node of another build may not tell of it.
func (v *verdict) compare(name string, all []*facts.Node) {
	type group struct {
		value string
		nodes []string
		unset bool // on all of them
		shell bool // it is set in the command's own environment, and on no other node
	}
	var groups []group
	strictest := handshake.RuleOwn
	for _, n := range all {
		value, rule, ok := holds(n, name)
		if !ok {
			continue
		}
		strictest = max(strictest, rule)
		i := slices.IndexFunc(groups, func(g group) bool { return g.value == value })
		if i < 0 {
			i, groups = len(groups), append(groups, group{value: value, unset: true})
		}
		env, _ := n.Process.Env.Get()
		g := &groups[i]
		g.nodes = append(g.nodes, n.Name)
		g.unset = g.unset && env[name] == ""
		g.shell = n.Shell && len(g.nodes) == 1 && !g.unset
	}
	if len(groups) < 2 {
		return
	}
	var said, nodes []string
	keys := 0
	for _, g := range groups {
		shown := cmp.Or(g.value, "unset")
		if name == keyVariable && g.value != "" {
			keys++
			shown = fmt.Sprintf("key %d", keys)
		}
		said, nodes = append(said, shown+" on "+strings.Join(g.nodes, ", ")), append(nodes, g.nodes...)
	}
	what := name + " is " + strings.Join(said, ", ")
	i := slices.IndexFunc(groups, func(g group) bool { return g.shell })
	switch {
	case strictest == handshake.RuleSame && len(groups) == 2 && i >= 0 && groups[1-i].unset:
		v.warn(both(nodes...), "have the launcher pass it on to all nodes, or unset it: ranks that differ in it wait for each other for ever", "%s: it is exported where this command runs, and ssh passes nothing on", what)
	case strictest == handshake.RuleSame:
		v.fail(both(nodes...), "set it to the same on all nodes, or unset it: ranks that differ in it wait for each other for ever", "%s", what)
	case name == keyVariable:
		v.warn(both(nodes...), "give all nodes the same key: nodes do not relay for those with another", "%s", what)
	default:
		v.info(both(nodes...), "", "%s: each node goes by its own", what)
	}
}
