package failover

import "slices"

// found is what a search came to.
type found struct {
	states int
	broken map[property][]string // with the shortest way there, in words
}

// node is a state, and the node that it was first reached from.
type node struct {
	state
	from int32
}

// search looks at every state of the model, those of few steps first. It does not go on
// from a step that breaks a property, nor after the connection has ended.
func (m model) search() found {
	if m.lanes > maxLanes || m.window > maxWindow || m.messages*m.parts > maxAll || m.parts > 2 {
		panic("failover: a state has no room for these sizes")
	}
	f := found{broken: map[property][]string{}}
	nodes := []node{{state{}, -1}}
	seen := map[state]struct{}{nodes[0].canonical(): {}}
	var steps []step
	for i := 0; i < len(nodes); i++ {
		s := nodes[i].state
		if m.over(&s) {
			continue
		}
		steps = m.steps(&s, steps[:0])
		sure := false
		for k := range steps {
			st := &steps[k]
			sure = sure || st.sure
			if st.bad != "" {
				f.add(st.bad, func() []string { return append(m.trace(nodes, i), st.String()) })
				continue
			}
			c := st.to.canonical()
			if _, ok := seen[c]; !ok {
				seen[c] = struct{}{}
				nodes = append(nodes, node{st.to, int32(i)})
			}
		}
		if !sure && !m.complete(&s) {
			f.add(neverCompletes, func() []string { return append(m.trace(nodes, i), "nothing is sure to happen: "+m.left(&s)) })
		}
	}
	f.states = len(nodes)
	return f
}

func (f *found) add(bad property, trace func() []string) {
	if _, ok := f.broken[bad]; !ok {
		f.broken[bad] = trace()
	}
}

// trace is the steps that led to a node.
func (m model) trace(nodes []node, i int) (text []string) {
	for ; nodes[i].from >= 0; i = int(nodes[i].from) {
		before := nodes[nodes[i].from].state
		steps := m.steps(&before, nil)
		k := slices.IndexFunc(steps, func(st step) bool { return st.to == nodes[i].state })
		text = append(text, steps[k].String())
	}
	slices.Reverse(text)
	return text
}
