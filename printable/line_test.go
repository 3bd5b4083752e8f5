package printable

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	tests := []struct {
		name, in string
		limit    int
		want     string
	}{
		{"empty", "", 0, ""},
		{"plain", "cable 2 of node-a is down", 64, "cable 2 of node-a is down"},
		{"letters of the world", "Größe ノード узел عقدة", 64, "Größe ノード узел عقدة"},
		{"a forged line", "down\nNET/Mesh : node-b is up\r\n", 64, "down NET/Mesh : node-b is up  "},
		{"white space", "a\tb\vc\fd", 64, "a b c d"},
		{"an escape sequence", "\x1b[2J\x1b]0;title\x07", 64, "?[2J?]0;title?"},
		{"the same of one byte, as a character", "\u009b2J", 64, "?2J"},
		{"the same of one byte, raw", "\x9b2J", 64, "?2J"},
		{"delete", "a\x7fb", 64, "a?b"},
		{"zero", "a\x00b", 64, "a?b"},
		{"next line", "a\u0085b", 64, "a b"},
		{"separators of lines and paragraphs", "a\u2028b\u2029c", 64, "a b c"},
		{"text from right to left", "a\u202egnp.exe", 64, "a?gnp.exe"},
		{"an isolate", "a\u2066b\u2069", 64, "a?b?"},
		{"without width", "a\u200bb\ufeff", 64, "a?b?"},
		{"tags", "a\U000e0041", 64, "a?"},
		{"bytes that are no text", "a\xff\xfeb", 64, "a??b"},
		{"half a letter", "a\xc3", 64, "a?"},
		{"too long", "abcdef", 5, "ab…"},
		{"cut in a letter", "aßßßß", 7, "aß…"},
		{"no room for an ellipsis", "abcdef", 2, "ab"},
		{"no room", "abcdef", 0, ""},
		{"as long as allowed", "abcdef", 6, "abcdef"},
		{"as long as allowed when fit", "\u202e\u202e\u202e", 3, "???"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Line(tt.in, tt.limit); got != tt.want {
				t.Errorf("Line(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
			}
		})
	}
}

// TestUnfitIsOfUnicode fails where this compiler's Unicode has control or format characters that the table lacks.
// Extending the table is a new version of the wire protocol: older nodes send such characters.
func TestUnfitIsOfUnicode(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		got := unicode.Is(unfit, r)
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !got {
			t.Errorf("the table lacks %U", r)
		}
		if got && unicode.IsGraphic(r) {
			t.Errorf("the table has %U, which is no control and no format character", r)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\nb\x1b[2J\u009b\u202e\xff", 8)
	f.Add(strings.Repeat("ß", 40), 33)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit &= 0xff
		got := Line(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("Line(%q, %d) = %q: %d bytes", s, limit, got, len(got))
		}
		for _, r := range got {
			if r < ' ' || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Errorf("Line(%q, %d) = %q, which has %U", s, limit, got, r)
			}
		}
		if again := Line(got, limit); again != got {
			t.Errorf("Line(%q, %d) = %q", got, limit, again)
		}
	})
}
