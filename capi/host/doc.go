// Package host is what the C libraries of this module need of the process that loads them: its environment as C has it, and
// notice of forks. Importing it installs the handlers of forks.
package host
