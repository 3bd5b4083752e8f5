// Package procgroup runs a program as the leader of a process group of its own, and signals the whole group.
//
// The kernel gives the number of a group to other processes once its last one has been reaped. A [Group] therefore leaves
// its leader unreaped until the group has got its last signal, and sends none afterwards.
package procgroup
