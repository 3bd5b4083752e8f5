// Package netdriver holds the driver that stands in for NCCL, and its test.
//
// The driver (src) is a C program: it loads a built network plugin as NCCL does, with any version
// of the interface, and runs one rank of a job with it. Its contract cases say, executably, what
// NCCL expects of a plugin. The reference plugin (selfplugin) is a correct one over loopback TCP
// that breaks one rule when told to; the test proves that the driver notices.
package netdriver
