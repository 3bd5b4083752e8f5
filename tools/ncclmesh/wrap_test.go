package main

import "testing"

func TestHang(t *testing.T) {
	tests := []struct {
		name, text string
		columns    int
		want       string
	}{
		{"no terminal", "one two three", 0, "one two three"},
		{"fits", "one two", 7, "one two"},
		{"breaks", "one two three\nfour", 8, "one two\n  three\nfour"},
		{"again", "one two three four", 8, "one two\n  three\n  four"},
		{"a word that is too wide", "a /usr/lib/libnccl.so b", 8, "a\n  /usr/lib/libnccl.so\n  b"},
		{"letters, not bytes", "ä ↔ ö üüü", 9, "ä ↔ ö üüü"},
		{"an indented line", "  → one two", 7, "  → one\n  two"},
		{"columns of a table", "a   b", 9, "a   b"},
	}
	for _, tt := range tests {
		if got := hang(tt.text, tt.columns); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestFill(t *testing.T) {
	const text = "# one\n\ntwo\nthree four\n\n* a list\n  of things\n\n| a | table |\n\nfive\n"
	want := "# one\n\ntwo three\nfour\n\n* a list\n  of things\n\n| a | table |\n\nfive\n"
	if got := fill(text, 10); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
