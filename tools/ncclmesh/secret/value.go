package secret

import (
	"bytes"
	"strings"
)

// at returns the byte of a text at an index, 0 outside of the text.
func at(text []byte, i int) byte {
	if i < 0 || i >= len(text) {
		return 0
	}
	return text[i]
}

// oneOf reports whether a character is one of some.
func oneOf(c byte, some string) bool { return c != 0 && strings.IndexByte(some, c) >= 0 }

// isWord reports whether a character is part of a word.
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// maxLine is how much of a line is looked at for the end of a value: a line may be all of a text, and have very many values.
const maxLine = 256 << 10

// lineEnd returns where the line that has index i ends, or how far it is looked at.
func lineEnd(text []byte, i int) int {
	end := min(i+maxLine, len(text))
	n := bytes.IndexByte(text[i:end], '\n')
	switch {
	case n < 0:
		return end
	case n > 0 && text[i+n-1] == '\r':
		return i + n - 1
	}
	return i + n
}

// maxInside is how many characters of what is found are looked at for more, in which it may overlap something longer.
const maxInside = 200

// scan returns what f finds at the characters of a text. f is given the quote of the string that the character is in, 0 where
// it is in none. A string ends with its line.
func scan(text []byte, f func(i int, open byte) (finding, bool)) []finding {
	var list []finding
	var open byte
	escaped := false
	var last finding
	for i, c := range text {
		if i >= last.end || i < last.start+maxInside {
			if found, ok := f(i, open); ok {
				list = append(list, found)
				if i >= last.end {
					last = found
				}
			}
		}
		switch {
		case c == '\n':
			open, escaped = 0, false
			continue
		case escaped:
			escaped = false
			continue
		case c == '\\':
			escaped = true
		case c == open:
			open = 0
		case open == 0 && (c == '"' || c == '\'' && begins(text, i)):
			open = c
		}
	}
	return list
}

// begins reports whether the single quote at i begins a string. In a word it is an apostrophe, but b'…' is a string.
func begins(text []byte, i int) bool {
	return !isWord(at(text, i-1)) || oneOf(at(text, i-1), "bBfFrRuU") && !isWord(at(text, i-2))
}

// A place is where a value begins. It says at which quotes and marks the value ends.
type place struct {
	open   byte   // the quote of the string that the value is in, 0 for none
	opener string // the quote, with the backslashes before it, that stands before the value's name and is not closed yet
	query  bool   // the value is in the query of a URL, or in a form
}

// quoted returns the contents of the string that begins at i, and its quote with the backslashes before it; quote is ""
// where no string begins there.
func quoted(text []byte, i int) (start, end int, quote string) {
	if oneOf(at(text, i), "bBfFrRuU") && oneOf(at(text, i+1), `"'`) { // as Python writes some strings
		i++
	}
	j := i
	for at(text, j) == '\\' {
		j++
	}
	if !oneOf(at(text, j), "\"'`") {
		return i, i, ""
	}
	quote = string(text[i : j+1])
	return j + 1, closing(text, j+1, quote), quote
}

// closing returns where the string ends that is open at i, and that quote has opened: before the next such quote with no more
// backslashes, or with its line.
func closing(text []byte, i int, quote string) int {
	depth, c, slashes := len(quote)-1, quote[len(quote)-1], 0
	for limit := min(i+maxLine, len(text)); i < limit; i++ {
		switch {
		case text[i] == '\n':
			return i
		case text[i] == '\\':
			slashes++
			continue
		case text[i] != c:
		case slashes <= depth:
			return i - slashes
		case depth == 0 && slashes%2 == 0:
			return i
		}
		slashes = 0
	}
	return i
}

// bracketed returns the contents of the brackets that open at i, which end with the line if no other does.
func bracketed(text []byte, i int) (start, end int) {
	start, end = i+1, lineEnd(text, i)
	depth := 0
	for ; i < end; i++ {
		switch c := text[i]; {
		case oneOf(c, "([{"):
			depth++
		case oneOf(c, ")]}"):
			if depth--; depth == 0 {
				return start, i
			}
		case c == '"', c == '\'' && begins(text, i):
			if j := closing(text, i+1, string(c)); at(text, j) == c {
				i = j
			}
		}
	}
	return start, end
}

// rest returns where the text ends that begins at i: with the string that it is in, or with the line.
func (p place) rest(text []byte, i int) int {
	switch {
	case p.opener != "":
		return closing(text, i, p.opener)
	case p.open != 0:
		return closing(text, i, string(p.open))
	}
	return lineEnd(text, i)
}

// bare returns where the value ends that begins at i and is not in quotes.
func (p place) bare(text []byte, i int) int {
	limit := min(i+maxLine, len(text))
	for i < limit {
		c := text[i]
		switch {
		case c == '(' && bytes.HasPrefix(text[i:], []byte(Gone)):
			i += len(Gone) - 1
		case c <= ' ', c == '`':
			return i
		case p.query && (oneOf(c, "&#") || bytes.HasPrefix(text[i:], []byte(`\u0026`))):
			return i
		case c == '\\' && p.open != 0 && oneOf(at(text, i+1), `nrt"'`):
			return i // the end of a line, or of a string, in a string
		case c == '\\':
			i++
		case c == p.open, p.opener != "" && c == p.opener[len(p.opener)-1]:
			return i
		case c == '"', c == '\'':
			if j := closing(text, i+1, string(c)); at(text, j) == c {
				i = j
			}
		case oneOf(c, ",;") && parts(text, i+1):
			return i
		case oneOf(c, ")]}>") && (i+1 == limit || oneOf(text[i+1], " \t\r\n\"'`,;.:)]}>\\")):
			return i
		}
		i++
	}
	return min(i, limit)
}

// parts reports whether the comma or semicolon before i ends a value: nothing follows on the line, or a space, or another
// name with its value.
func parts(text []byte, i int) bool {
	c := at(text, i)
	if c <= ' ' || oneOf(c, "\"'") {
		return true
	}
	j := i
	for j < i+100 && (isWord(at(text, j)) || oneOf(at(text, j), ".-")) {
		j++
	}
	return j > i+1 && oneOf(at(text, j), "=:")
}
