// Package jobenv knows what the environment of a job should say so that NCCL uses the plugin, and what in the present one
// works against it.
//
// The plugin's own variables are judged by package config, as the plugin judges them. The rest is a table: a variable of
// NCCL's or of the loader, when it stands in the way, and why.
package jobenv
