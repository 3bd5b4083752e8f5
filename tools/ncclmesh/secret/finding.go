package secret

import (
	"bytes"
	"cmp"
	"slices"
)

// Gone stands in a text for a secret.
const Gone = "(redacted)"

// A finding is a secret in a text.
type finding struct {
	start, end int    // of the secret in the text
	with       string // stands for the secret; Gone, with quotes where what was JSON is to stay so
}

// A rule finds secrets of one kind. Its findings may overlap.
type rule struct {
	name string
	find func(text, lower []byte) []finding // lower is the text in lower case
}

// rules are this package's own.
var rules = []rule{
	{"private key", privateKeys},
	{"URL", urls},
	{"assignment", assignments},
	{"assignment", pairs},
	{"option", options},
	{"phrase", phrases},
	{"form", forms},
}

// Redact returns a text in which Gone stands for every secret that the rules find. It calls each, unless that is nil, with the
// name of a rule and with what it has found, which each must not keep.
func Redact(text []byte, each func(rule string, value []byte)) []byte {
	type named struct {
		finding
		rule string
	}
	var list []named
	lower := lowered(text)
	for _, r := range slices.Concat(rules, issued()) {
		for _, f := range r.find(text, lower) {
			if !harmless(text[f.start:f.end]) {
				list = append(list, named{f, r.name})
			}
		}
	}
	// The rules do not see what others have left, so that what one takes for a secret does not hide the name of another. What
	// overlaps is one secret.
	slices.SortStableFunc(list, func(a, b named) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	var b []byte
	at := 0
	for i := 0; i < len(list); {
		f := list[i]
		for i++; i < len(list) && list[i].start < f.end; i++ {
			f.end = max(f.end, list[i].end)
		}
		if each != nil {
			each(f.rule, text[f.start:f.end])
		}
		b = append(append(b, text[at:f.start]...), f.with...)
		at = f.end
	}
	if at == 0 {
		return text
	}
	return append(b, text[at:]...)
}

// placeholders are no secrets, whatever name they follow: they stand for one, or say whether there is one or of which kind.
var placeholders = set(`(redacted) (set) (unset) <redacted> [redacted] *** ****** ******** basic false munge nil no none null off on required
	set simple true undefined unset yes`)

// harmless reports whether a value is no secret, with quotes or without.
func harmless(value []byte) bool {
	value = bytes.Trim(value, "\\\"'` \t,;.:")
	return len(value) == 0 || len(value) <= 12 && placeholders[string(bytes.ToLower(value))]
}

// said are words that follow the name of a secret in a sentence, and are none.
var said = set(`a an and are argument bytes cannot could denied differs empty expired failed for found from has in instead invalid is it longer
	missing must needed needs not of ok only option or read rejected shorter str string that the to too unknown use used want was were with
	wrong`)
