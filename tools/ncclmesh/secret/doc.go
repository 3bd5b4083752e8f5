// Package secret finds keys, tokens and passwords in the names of variables and in text, and replaces them.
//
// It has two sets of rules. Its own find a secret by its place: after a name such as DB_PASS, after an option of a command
// line, in a URL, in an HTTP header. Those of gitleaks, in gitleaks.toml, find a secret by the form that its issuer gives it.
// A text that both sets leave unchanged may still hold a secret that has neither a name nor a known form.
package secret
