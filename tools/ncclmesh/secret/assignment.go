package secret

import (
	"bytes"
	"regexp"
	"strings"
)

// A name is one that stands before a value.
type name struct {
	text   string
	start  int    // of the name in the text
	opener string // the quote, with the backslashes before it, that stands before the name and is not closed before its end
	quote  string // the quote, with the backslashes before it, that the name is in; "" where it is in none
}

// maxName is how long a name may be.
const maxName = 100

// nameBefore returns the name that ends before i, after which there may be a quote, a bracket and blanks.
func nameBefore(text []byte, i int) (n name, ok bool) {
	for oneOf(at(text, i-1), " \t") {
		i--
	}
	if oneOf(at(text, i-1), "])") && oneOf(at(text, i-2), "\"'") { // a subscript
		i--
	}
	if oneOf(at(text, i-1), "\"'`") {
		end := i
		for i--; at(text, i-1) == '\\'; {
			i--
		}
		n.quote = string(text[i:end])
	}
	end := i
	for end-i < maxName && (isWord(at(text, i-1)) || oneOf(at(text, i-1), ".-")) {
		i--
	}
	i = afterEscape(text, i, end)
	n.start, n.text = i, string(text[i:end])
	if n.quote == "" && oneOf(at(text, i-1), "\"'`") {
		for i--; at(text, i-1) == '\\'; {
			i--
		}
		n.opener = string(text[i:n.start])
	}
	return n, n.start < end
}

// afterEscape returns where a word begins that runs from start to end, after the letters of an escape sequence: of \n, \u0026
// and \x26 in strings, and of the colours of a terminal.
func afterEscape(text []byte, start, end int) int {
	word := text[start:end]
	switch before := at(text, start-1); {
	case before == '\\' && len(word) > 0 && oneOf(word[0], "nrt"):
		return start + 1
	case before == '\\' && len(word) > 4 && word[0] == 'u':
		return start + 5
	case before == '\\' && len(word) > 2 && word[0] == 'x':
		return start + 3
	case oneOf(before, "[;") && coloured.Match(word):
		return start + bytes.IndexByte(word, 'm') + 1
	}
	return start
}

var coloured = regexp.MustCompile(`^[0-9]{1,3}m`)

// signed are names of parameters in URLs that are secrets there.
var signed = regexp.MustCompile(`(?i)^(?:x-(?:amz|goog)-)?(?:sig|signature|code|credential)$`)

// assignments finds values that follow the name of a secret and an equals sign or a colon.
func assignments(text, _ []byte) []finding {
	return scan(text, func(i int, open byte) (finding, bool) {
		if c := text[i]; c != '=' && c != ':' || c == ':' && (at(text, i+1) == ':' || at(text, i-1) == ':') {
			return finding{}, false
		}
		from := i
		if text[i] == '=' && oneOf(at(text, i-1), ":+?|!=") { // all of an operator
			from--
		}
		n, ok := nameBefore(text, from)
		if !ok {
			return finding{}, false
		}
		p := place{open: open, opener: n.opener, query: oneOf(at(text, n.start-1), "?&") || bytes.HasSuffix(text[:n.start], []byte(`\u0026`))}
		if !Name(n.text) && !(p.query && signed.MatchString(n.text)) {
			return finding{}, false
		}
		from = i + 1
		for from < i+3 && oneOf(at(text, from), "=>") {
			from++
		}
		start := skip(text, from, " \t")
		return p.value(text, n, start, text[i] == ':' && start > i+1)
	})
}

// value returns the value of a name, which begins at i. In prose, after a colon and a blank, it may have several words.
func (p place) value(text []byte, n name, i int, prose bool) (finding, bool) {
	if i >= len(text) || oneOf(text[i], "\r\n") || bytes.HasPrefix(text[i:], []byte(Gone)) || bytes.HasPrefix(text[i:], []byte("://")) {
		return finding{}, false
	}
	if prose && said[strings.ToLower(string(text[i:p.bare(text, i)]))] {
		if i = skip(text, p.bare(text, i), " \t"); at(text, i) != '=' {
			return finding{}, false
		}
		return p.value(text, n, skip(text, i+1, " \t"), false) // what was in between is a type
	}
	w := words(n.text)
	whole := len(w) > 0 && header[w[len(w)-1]]
	f := finding{with: Gone}
	var quote string
	f.start, f.end, quote = quoted(text, i)
	switch {
	case quote != "" && (quote == p.opener || len(quote) == 1 && quote[0] == p.open) && ends(at(text, f.start)):
		return finding{}, false // the name is the end of a string
	case quote != "":
	case oneOf(text[i], "([") || whole && text[i] == '{':
		f.start, f.end = bracketed(text, i)
		f.with = n.quote + Gone + n.quote
	case text[i] == '{': // what is in it has names of its own
		return finding{}, false
	case whole || prose && strings.Contains(strings.ToLower(n.text), "phrase"):
		f.end = p.rest(text, i)
	default:
		f.end = p.bare(text, i)
	}
	if quote == "" && n.quote != "" && f.with == Gone { // what was JSON stays JSON
		f.with = n.quote + Gone + n.quote
	}
	return f, f.end > f.start && !ordinary(n.text, text[f.start:f.end], prose)
}

// skip returns where characters end that are one of some, from i on.
func skip(text []byte, i int, some string) int {
	for oneOf(at(text, i), some) {
		i++
	}
	return i
}

// ends reports whether the quote before a character ends a string, and does not begin one.
func ends(c byte) bool { return c <= ' ' || oneOf(c, "\"'`,;:)]}\\") }

// header are last words of names of HTTP headers whose value has several words.
var header = set("authorization cookie cookies")

// number matches values that are too short for keys.
var number = regexp.MustCompile(`^(?:0[xX][0-9A-Fa-f]{1,8}|-?[0-9]{1,6})$`)

// ordinary reports whether a value is none of a secret, although its name may be that of one: numbers of keys, keys of
// dictionaries and stores, and the word pass in the output of tests.
func ordinary(name string, value []byte, prose bool) bool {
	w := words(name)
	switch w[len(w)-1] {
	case "key", "keys":
		if number.Match(value) {
			return true
		}
		return len(w) == 1 && (len(value) < 6 || bytes.ContainsAny(value, "/ ") || !bytes.ContainsAny(value, digits) ||
			!bytes.ContainsFunc(value, func(r rune) bool { return r >= 'A' && r <= 'z' }))
	case "pass", "auth":
		return len(w) == 1 && (number.Match(value) || prose && (name == "PASS" || name == "Pass"))
	}
	return false
}

var (
	named  = near("name", `(?i)(\\*["']?)\bname\\*["']?[ \t]*[=:][ \t]*\\*["']?([\w.-]+)\\*["']?[ \t]*,?\s*(?:\\*["'])?\bvalue\\*["']?[ \t]*[=:][ \t]*`)
	tagged = near("</", `<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?>([^<>\n]+)</`)
	paired = near("authorization cookie", `(?i)["'](?:(?:proxy-)?authorization|(?:set-)?cookie2?)["']\s*,\s*`)
)

// pairs finds values whose names stand in a field of their own: {"name": "DB_PASS", "value": "…"}, <password>…</password>,
// ("Authorization", "…").
func pairs(text, lower []byte) []finding {
	var list []finding
	for _, m := range named.all(text, lower) {
		if !Name(string(text[m[4]:m[5]])) {
			continue
		}
		if f, ok := (place{}).value(text, name{text: "value_token", quote: string(text[m[2]:m[3]])}, m[1], false); ok {
			list = append(list, f)
		}
	}
	for _, m := range tagged.all(text, lower) {
		if Name(string(text[m[2]:m[3]])) {
			list = append(list, finding{m[4], m[5], Gone})
		}
	}
	for _, m := range paired.all(text, lower) {
		if start, end, quote := quoted(text, m[1]); quote != "" {
			list = append(list, finding{start, end, Gone})
		}
	}
	return list
}
