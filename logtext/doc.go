// Package logtext renders records of a log as text: the message, and then key=value for each attribute.
package logtext
