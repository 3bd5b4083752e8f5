package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// columns is how wide the terminal is that a writer leads to; 0 where it leads to none, where lines stay as they are.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 80
	}
	return max(n, 40)
}

// hang breaks the lines of a text at spaces, so that none is wider than the columns unless a word is. What is broken off is
// indented by two. 0 columns break nothing.
func hang(text string, columns int) string {
	if columns == 0 {
		return text
	}
	all := strings.Split(text, "\n")
	for i, line := range all {
		all[i] = hangBy(line, columns, "  ")
	}
	return strings.Join(all, "\n")
}

// hangBy breaks a line at spaces, so that none is wider than the columns unless a word is. What is broken off is indented.
func hangBy(line string, columns int, indent string) string {
	var b strings.Builder
	at, begins := 0, len(line)-len(strings.TrimLeft(line, " "))
	for i, word := range strings.Split(line, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case at > begins && at+1+n > columns && word != "":
			b.WriteString("\n" + indent)
			at, begins = len(indent), len(indent)
		case i > 0:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
