package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// unfit holds the characters of Unicode's categories Cc (control), Cf (format: among them those that override the
// direction of text, and those without width), Zl and Zp (line and paragraph separators). The table is written out,
// because two nodes must agree on it whichever version of Unicode their compilers know: a node refuses a message whose
// text is not fit.
var unfit = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0000, Hi: 0x001f, Stride: 1},
		{Lo: 0x007f, Hi: 0x009f, Stride: 1},
		{Lo: 0x00ad, Hi: 0x00ad, Stride: 1},
		{Lo: 0x0600, Hi: 0x0605, Stride: 1},
		{Lo: 0x061c, Hi: 0x061c, Stride: 1},
		{Lo: 0x06dd, Hi: 0x06dd, Stride: 1},
		{Lo: 0x070f, Hi: 0x070f, Stride: 1},
		{Lo: 0x0890, Hi: 0x0891, Stride: 1},
		{Lo: 0x08e2, Hi: 0x08e2, Stride: 1},
		{Lo: 0x180e, Hi: 0x180e, Stride: 1},
		{Lo: 0x200b, Hi: 0x200f, Stride: 1},
		{Lo: 0x2028, Hi: 0x202e, Stride: 1},
		{Lo: 0x2060, Hi: 0x206f, Stride: 1},
		{Lo: 0xfeff, Hi: 0xfeff, Stride: 1},
		{Lo: 0xfff9, Hi: 0xfffb, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x110bd, Hi: 0x110cd, Stride: 16},
		{Lo: 0x13430, Hi: 0x1343f, Stride: 1},
		{Lo: 0x1bca0, Hi: 0x1bca3, Stride: 1},
		{Lo: 0x1d173, Hi: 0x1d17a, Stride: 1},
		{Lo: 0xe0000, Hi: 0xe007f, Stride: 1},
	},
	LatinOffset: 3,
}

const ellipsis = "…"

// Line returns s as one line of UTF-8 text of at most limit bytes. White space that ends or moves a line becomes a
// space; each further control or format character, and each byte that is not UTF-8, becomes a question mark. Text that
// is too long is cut between two characters and ends in "…" where limit has room for it. Line returns a text that is
// already so unchanged, and so its own results.
func Line(s string, limit int) string {
	s = strings.Map(fit, s)
	if len(s) <= limit {
		return s
	}
	end := ""
	if limit >= len(ellipsis) {
		limit, end = limit-len(ellipsis), ellipsis
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + end
}

// fit returns the character that stands for r.
func fit(r rune) rune {
	switch {
	case r >= '\t' && r <= '\r', r == '\u0085', r == '\u2028', r == '\u2029':
		return ' '
	case r == utf8.RuneError, unicode.Is(unfit, r):
		return '?'
	}
	return r
}
