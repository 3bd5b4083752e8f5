// Package setup brings a host to where a job can use the mesh: the command and the library are there, and the ports are switched
// on.
//
// An agent ([Serve]) says what is there, as a [State]; [State.Steps] is what is missing. The agent then does the steps that it is
// asked to do, and no other. What needs root is done as root, or through sudo where that asks for no password; a step that can
// be done neither way says what a person has to do.
package setup
