package overlay

import (
	"context"
	"errors"
	"testing"

	"ncclmesh/handshake"
)

// A process that only examines the mesh, or is about to end, relays no circuits.
func TestRefuse(t *testing.T) {
	retired := New(Config{})
	if err := retired.Retire(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		o    *Overlay
		want error
	}{{New(Config{}), nil}, {New(Config{Observes: true}), errObserves}, {retired, errRetired}} {
		if got := tt.o.refuse(); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}

// A nil Overlay, and one that has not started, has no routes and refuses circuits. It takes the messages that are for an
// overlay, and no others.
func TestOff(t *testing.T) {
	for name, o := range map[string]*Overlay{"off": nil, "not started": New(Config{})} {
		t.Run(name, func(t *testing.T) {
			_, routes := o.Routes(t.Context(), handshake.NodeID{}, false)
			_, neighbours := o.Neighbours(t.Context())
			_, opened := o.OpenCircuit(context.Background(), 0, nil, nil, nil)
			for what, err := range map[string]error{"Routes": routes, "Neighbours": neighbours, "OpenCircuit": opened, "Expect": o.Expect(1, nil, nil)} {
				if !errors.Is(err, ErrOff) {
					t.Errorf("%s: %v, want %v", what, err, ErrOff)
				}
			}
			o.Cancel(1)
			o.SessionEnded(nil)
			o.PortDown(0, nil)
			o.PortsChanged()
			if o.Uses(nil) || o.Others(handshake.NodeID{}) || o.Ends(handshake.NodeID{}, true) != nil || o.CircuitPort(nil) != nil || o.Relaying().Now != 0 {
				t.Error("it is in use")
			}
			for _, m := range []handshake.Message{&handshake.MapQuery{}, &handshake.Map{}, &handshake.CircuitOpen{}, &handshake.CircuitDeliver{}, &handshake.CircuitOpened{}, &handshake.CircuitClose{}, &handshake.CircuitStalled{}} {
				if !o.Message(nil, m) {
					t.Errorf("%v is not for an overlay", m.Type())
				}
			}
			if o.Message(nil, &handshake.Bye{}) {
				t.Error("Bye is for an overlay")
			}
			if err := errors.Join(o.StopDiscovery(), o.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}
