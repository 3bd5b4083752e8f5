package transport

import (
	"ncclmesh/ibv"
	"ncclmesh/transport/sock"
)

// A Machine is what a transport runs on. The zero value is the machine that the process is on; a simulation sets others.
type Machine struct {
	Verbs   ibv.Driver   // nil: libibverbs
	Network sock.Network // nil: the kernel's
}

// library opens what does the verbs: the driver of the machine, else the first of the named libraries that is found.
func (m *Machine) library(names []string) (*ibv.Library, error) {
	if m.Verbs != nil {
		return ibv.Use(m.Verbs), nil
	}
	return ibv.Load(names...)
}
