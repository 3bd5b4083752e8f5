// Package gather finds out what a node knows of itself, for package doctor to judge.
//
// Node looks at sysfs, /proc, /etc and netlink, and tries what can be tried on one node
// alone: that devices open and memory can be registered. All of it comes through a
// Source. It changes nothing, and takes well under a second; what it may not see without
// root is unknown, and says so. No tool is run and no tool's text is read; a library that a
// job would load is loaded in a child process of this program's.
//
// Fleet does so on many nodes at once, and has each try to reach the others.
package gather
