// Package docs keeps README.md and the pages under docs true.
//
// Tables and numbers that the code knows are generated: [Generate] writes what stands between a page's begin and end
// comments, and the numbers in sentences like "N known faults". The tests check that the pages are current, that links
// lead somewhere, that commands, options, variables, paths and tests that a page names exist, and run the commands in
// blocks marked sh, except where the fence gives a reason not to.
package docs

//go:generate go run ./cmd/pages
