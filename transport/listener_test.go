package transport

import (
	"errors"
	"strings"
	"testing"
)

// The number of connections that wait for Accept is limited.
func TestListenerIsBounded(t *testing.T) {
	l := &Listener{}
	for i := range maxWaiting {
		if err := l.begin(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			l.finish(nil, errors.New("failed"))
		}
	}
	if err := l.begin(); err == nil || !strings.Contains(err.Error(), "wait to be accepted") {
		t.Errorf("one too many: %v", err)
	}
	l.peerLost(errors.New("dropped"))
	if _, err := l.Accept(); err == nil {
		t.Error("no failure was told")
	}
	if err := l.begin(); err != nil {
		t.Errorf("after an Accept: %v", err)
	}
}
