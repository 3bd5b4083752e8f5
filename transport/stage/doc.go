// Package stage is how far something has come that never goes back: a connection, a session, a circuit.
package stage
