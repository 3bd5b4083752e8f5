// Benchibv measures what a verbs call costs from Go: an 8-byte write posted and
// its completion polled, beside a C loop that does the same on the same library.
package main
