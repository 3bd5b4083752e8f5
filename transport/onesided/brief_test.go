package onesided

import "testing"

// Words of a window that lie beside each other have different numbers of brief signals, because several are in use at a time.
func TestNumbersOfSignals(t *testing.T) {
	seen := map[uint8]uint64{}
	for i := range uint64(256) {
		s := signal{window: 3, offset: 8 * i, value: 1, what: uint32(SignalAdd)}
		if other, ok := seen[s.number()]; ok {
			t.Fatalf("the signals of words %d and %d have the number %d", other, i, s.number())
		}
		seen[s.number()] = i
	}
}

// A brief signal is refused unless a signal was sent before for which its number stands.
func TestUnknownBriefSignal(t *testing.T) {
	p := newPeer(New())
	p.known[7] = signal{window: 3, offset: 16, value: 2, what: uint32(SignalAdd)}
	if err := p.recall(7); err != nil || p.current.signal() != p.known[7] {
		t.Errorf("number 7: %v, %+v, want %+v", err, p.current, p.known[7])
	}
	if err := p.recall(8); err == nil {
		t.Errorf("number 8 is accepted as %+v", p.current)
	}
}
