package transport

import (
	"testing"
	"time"
)

// What has just been warned of is not news; what has not for a while, or something else, is.
func TestAgain(t *testing.T) {
	tr := &Transport{lately: map[string]time.Time{"long ago": time.Now().Add(-time.Hour), "soon": time.Now().Add(time.Hour)}}
	for _, tt := range []struct {
		subject string
		want    bool
	}{{"first", false}, {"long ago", false}, {"soon", true}} {
		if got := tr.again(tt.subject); got != tt.want {
			t.Errorf("%q was warned of: %v, want %v", tt.subject, got, tt.want)
		}
		if last := tr.lately[tt.subject]; !tt.want && time.Since(last) > time.Minute {
			t.Errorf("%q was last warned of at %v", tt.subject, last)
		}
	}
}
