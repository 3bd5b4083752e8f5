package ncclnet

import (
	"fmt"
	"strings"
	"sync"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tuner"
)

const (
	// useRelays: the model may choose algorithms that need relays. It is off because the cost of relaying has not been
	// measured on an adapter.
	useRelays = false

	// maxTunedNodes is more than any mesh of cables has.
	maxTunedNodes = 64
)

// Tuner returns the table of answers for a communicator, always the same one for the same mesh. It returns nil if the
// choice is left to NCCL: because of the settings, because nodes have several ranks, or because the communicator does
// not use this network. The latter is the case when the network is not open, because NCCL opens it first. A single rank
// for which that is so has no connection to the others.
//
// masked reports that NCCL has marked the algorithms and protocols that NCCL_ALGO and NCCL_PROTO exclude.
//
// There is no error, because NCCL would abort. A setting that cannot be parsed has already failed the network's init.
func (n *Net) Tuner(logger Logger, ranks, nodes int, masked bool) *tuner.Table {
	log := n.process.logTo(logger)
	ref := n.process.AcquireIfOpen()
	if ref == nil {
		log.Debug("tuner: left to NCCL: the communicator does not run over this network")
		return nil
	}
	defer func() {
		if err := ref.Release(); err != nil { // all other references were released meanwhile, so that this call closed the network
			log.Warn("tuner: closing the network", "error", err)
		}
	}()
	if why := n.whyUntuned(ref.tuning, ranks, nodes, masked); why != "" {
		log.Debug("tuner: left to NCCL: " + why)
		return nil
	}
	mesh := tuner.Mesh{Nodes: nodes, Topology: ref.tuning.Topology, Relay: useRelays}
	table, made := n.tables.get(mesh)
	if made {
		log.Info(describeTuning(mesh, table))
	}
	return table
}

// tables holds the tables made so far, one for each kind of mesh.
type tables struct {
	mu   sync.Mutex
	made map[tuner.Mesh]*tuner.Table
}

// get returns the table of a mesh, and whether this call made it.
func (t *tables) get(m tuner.Mesh) (_ *tuner.Table, made bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if table := t.made[m]; table != nil {
		return table, false
	}
	if t.made == nil {
		t.made = map[tuner.Mesh]*tuner.Table{}
	}
	t.made[m] = tuner.NewTable(tuner.NewModel(m, tuner.Spark))
	return t.made[m], true
}

// whyUntuned returns the reason why a communicator is left to NCCL, or "".
func (n *Net) whyUntuned(t config.Tuning, ranks, nodes int, masked bool) string {
	switch {
	case t.Off:
		return "NCCL_MESH_TUNER=0"
	case nodes < 2 || nodes > maxTunedNodes:
		return fmt.Sprintf("%d nodes", nodes)
	case ranks != nodes:
		return fmt.Sprintf("%d ranks on %d nodes", ranks, nodes)
	case !masked && n.process.host.Getenv("NCCL_ALGO")+n.process.host.Getenv("NCCL_PROTO") != "":
		return "NCCL_ALGO or NCCL_PROTO is set"
	}
	return ""
}

func describeTuning(m tuner.Mesh, t *tuner.Table) string {
	s := fmt.Sprintf("tuner: chooses algorithm, protocol and channels for %d nodes", m.Nodes)
	if len(t.Without) > 0 {
		var names []string
		for _, a := range t.Without {
			names = append(names, a.String())
		}
		s += ", without " + strings.Join(names, " and ") +
			": some nodes have no cable between them (NCCL_MESH_TOPOLOGY=full, on all ranks, if they have)"
	}
	return s + "; NCCL_MESH_TUNER=0 leaves it to NCCL"
}
