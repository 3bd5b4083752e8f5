// Package netplan gives the mesh ports of a node addresses, for software other than the plugin, which needs none.
//
// [Cables] pairs the functions at both ends of each cable by who answers there, [Plan] gives each pair a subnet, and [Plan.File]
// writes them as a netplan file. The subnet follows from the two hardware addresses alone: both ends find the same without a
// word between them, today and after a reboot, and a cable more or fewer moves no other.
//
// [Apply] puts the file in place and takes it back unless the [Management] network is there afterwards.
package netplan
