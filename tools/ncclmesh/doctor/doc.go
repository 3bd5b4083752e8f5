// Package doctor judges a mesh by what is known of its nodes.
//
// A [Check] has an id, a page under docs/checks, and a function over package facts. What it
// finds are [Finding]s: severity, where, evidence and remedy. A check that finds nothing
// passes, so one that lacks evidence says so: unknown is never a pass. Checks change
// nothing, look at nothing themselves, and are given whatever was found out.
//
// Causes hide their consequences: a check names those that explain its findings ([Check].After),
// and a finding at a place that such a one has found something at is kept, and not shown.
package doctor
