package nccl

import "ncclmesh/tests/fabric"

// Lanes are what carries a job's data on a mesh.
type Lanes struct {
	Name   string
	Mesh   func(fabric.Mesh) fabric.Mesh // what becomes of the mesh
	plugin bool
	env    []string
}

// AllLanes are the plugin's, and NCCL's own sockets beside them: what fails there too
// is not the plugin's fault.
var AllLanes = []Lanes{
	{"rdma", func(m fabric.Mesh) fabric.Mesh { return m }, true, []string{"NCCL_MESH_TRANSPORT=rdma"}},
	{"tcp", fabric.Mesh.Plain, true, nil},
	{"sockets", fabric.Mesh.Plain, false, nil},
}

// Job is one over these lanes.
func (l Lanes) Job(rank, plugin string, steps ...string) Job {
	j := Job{Rank: rank, Env: l.env, Steps: steps}
	if l.plugin {
		j.Plugin = plugin
	}
	return j
}
