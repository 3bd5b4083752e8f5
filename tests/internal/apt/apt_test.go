package apt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURIs(t *testing.T) {
	tests := []struct {
		name, out string
		want      []Deb
		err       string
	}{
		{"packages", "'http://x/a_1.deb' a_1%3a2-3_amd64.deb 42 SHA256:00\n'http://x/b' linux-image-6.12.1+deb_6~x_all.deb 7\n", []Deb{
			{"a", "1:2-3", "a_1%3a2-3_amd64.deb", 42, "00"},
			{"linux-image-6.12.1+deb", "6~x", "linux-image-6.12.1+deb_6~x_all.deb", 7, ""},
		}, ""},
		{"remarks are passed over", "W: something\nReading\n'u' a_1_amd64.deb 1\n", []Deb{{"a", "1", "a_1_amd64.deb", 1, ""}}, ""},
		{"no package", "", nil, "no package"},
		{"no size", "'u' a_1_amd64.deb x\n", nil, "cannot read"},
		{"no version", "'u' a.deb 1\n", nil, "cannot read"},
		{"bad escape", "'u' a_%zz_amd64.deb 1\n", nil, "version"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseURIs(tt.out)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("packages (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

func FuzzParseURIs(f *testing.F) {
	f.Add("'u' a_1%3a2_amd64.deb 1\n")
	f.Fuzz(func(t *testing.T, out string) {
		debs, err := ParseURIs(out)
		if (err == nil) == (len(debs) == 0) {
			t.Errorf("ParseURIs(%q) = %d packages, %v", out, len(debs), err)
		}
	})
}
