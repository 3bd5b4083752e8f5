// Package e2e proves the built plugin from end to end: the driver that stands in for NCCL runs it on the nodes of fabrics made by
// tests/fakeverbs, each node in a network namespace of its own, while cables, verbs and processes fail and strangers knock.
package e2e
