// Package mesh makes a mesh out of nothing but the kernel: nodes are network
// namespaces with a host name and a sysfs of their own, cables are veth pairs, and
// a bridge is the management network.
//
// Everything belongs to processes: one that holds the namespaces together, one on
// each node. When the caller's process ends, however it ends, so do they, and
// nothing is left of the mesh. Without root a user namespace gives the rights that
// are needed, where the kernel allows that.
//
// The processes are this program again: whoever calls [Run] calls [Main] first
// thing in main or TestMain.
package mesh
