// Package rules has no code, only tests: the rules of the repository that a
// compiler does not check. Which package may import which, where unsafe may
// stand, what the built library exports and needs, that it loads as NCCL loads
// it, and that docs/configuration.md tells the truth about the configuration.
package rules
