// Package config is the table of environment variables that the plugin reads: each
// one's name, default, unit, meaning and parser, in one place.
//
// It knows neither NCCL nor C: the environment is handed in as a function, since Go's own copy lacks what the host set
// after it started. What it returns is complete: the options of package transport, what the tuner goes by, and how
// much is logged. [Settings] says the same to people, with where each value comes from.
package config
