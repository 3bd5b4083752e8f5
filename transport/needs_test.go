package transport

import (
	"testing"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
)

// The process that dialled a session is needed while there is a listener here that it may connect to, even without a
// connection. If the network fails meanwhile, it is waited for as long as one that has connections.
func TestNeeds(t *testing.T) {
	s, another := new(control.Session), new(control.Session)
	tests := []struct {
		name      string
		conns     map[connKey]*conn.Conn
		listeners map[uint32]*Listener
		want      bool
	}{
		{"nothing", nil, nil, false},
		{"a connection", map[connKey]*conn.Conn{{s, 1}: nil}, nil, true},
		{"another's", map[connKey]*conn.Conn{{another, 1}: nil}, nil, false},
		{"a listener", nil, map[uint32]*Listener{1: nil}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := &Transport{conns: tt.conns, listeners: tt.listeners}
			if got := tr.needsPeer(s); got != tt.want {
				t.Errorf("needsPeer returns %v", got)
			}
		})
	}
}
