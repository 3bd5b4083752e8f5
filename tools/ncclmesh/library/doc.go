// Package library finds the plugin's library where NCCL would, and tells this project's from another's of the same name.
package library
