package fault

import "strings"

// OneLine returns the text of an error on one line. Errors that were joined, which are on a line each, are separated by semicolons.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
