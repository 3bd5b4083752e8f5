// Package config is the table of environment variables that the plugin reads: the
// name, default, unit, meaning and parser of each.
//
// It does not depend on NCCL or C: the caller passes the environment as a function, because Go's own copy lacks variables
// that the host has set after its start. The result is complete: the options of package transport, the options of the tuner,
// and the log level. [Settings] returns the values for users, with the origin of each.
package config
