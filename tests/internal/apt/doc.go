// Package apt asks Debian's and Ubuntu's package archives for packages without
// touching the host: its own state, its own cache, no installation.
package apt
