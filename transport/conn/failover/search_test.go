package failover

import "slices"

// found is what a search came to.
type found struct {
	states  int
	classes int                   // number of states, in whatever order their lanes are
	broken  map[property][]string // with the shortest history that leads there, in words
}

// node is a state that was reached: the state that it was first reached from, and by which of that state's steps.
type node struct {
	from int32
	step uint16
}

// search looks at every state of the model, those of few steps first. It does not go on from a step that breaks a property, nor
// after the connection has ended.
func (m model) search() found {
	if m.lanes > maxLanes || m.window > maxWindow || m.messages > maxMessages || m.messages*m.parts > maxAll || m.parts > 2 {
		panic("failover: a state has no room for these sizes")
	}
	f := found{broken: map[property][]string{}}
	nodes := []node{{-1, 0}}
	states := []*state{m.begin()} // by node; nil once looked at
	seen, classes := map[key]struct{}{m.key(states[0]): {}}, map[key]struct{}{}
	var steps []step
	for i := 0; i < len(nodes); i++ {
		s := states[i]
		states[i] = nil
		if m.ordered {
			classes[model{sizes: m.sizes}.key(s)] = struct{}{}
		}
		if m.over(s) {
			continue
		}
		steps = m.steps(s, steps[:0])
		sure := false
		for k := range steps {
			st := &steps[k]
			sure = sure || st.sure
			if st.bad != "" {
				f.add(st.bad, func() []string { return append(m.history(nodes, i), st.String()) })
				continue
			}
			at := m.key(st.to)
			if _, ok := seen[at]; !ok {
				seen[at] = struct{}{}
				nodes, states = append(nodes, node{int32(i), uint16(k)}), append(states, st.to)
			}
		}
		if !sure && !m.complete(s) {
			f.add(neverCompletes, func() []string { return append(m.history(nodes, i), "nothing is sure to happen: "+m.standing(s)) })
		}
	}
	f.states, f.classes = len(nodes), len(classes)
	return f
}

func (f *found) add(bad property, history func() []string) {
	if _, ok := f.broken[bad]; !ok {
		f.broken[bad] = history()
	}
}

// history returns the steps that led to a node.
func (m model) history(nodes []node, i int) (text []string) {
	var taken []uint16
	for ; nodes[i].from >= 0; i = int(nodes[i].from) {
		taken = append(taken, nodes[i].step)
	}
	slices.Reverse(taken)
	s := m.begin()
	for _, k := range taken {
		st := m.steps(s, nil)[k]
		text, s = append(text, st.String()), st.to
	}
	return text
}
