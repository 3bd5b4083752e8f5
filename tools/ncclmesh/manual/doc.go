// Package manual writes manual pages, in the macros of man(7), from the help of a command and of its subcommands.
package manual
