// Package lab boots small virtual machines with the distribution's own kernel and its Soft-RoCE driver (rdma_rxe), cabled
// as a mesh, and runs scripts in them: the real kernel driver, the real libibverbs, real sysfs and netlink, on any host.
//
// [Prepare] makes what a machine boots from, once: kernel, initramfs and a root directory of unpacked packages, cached under
// one directory. [Images.Start] boots the machines of a [Mesh] and brings its interfaces up; [Machine.Run] runs a script in one
// of them and returns its status and output. A script finds the files of the job in /job, which all machines share.
//
// Machines have no way out: cables are Unix datagram sockets between two of them, the management network is a switch inside
// this process, and files pass over 9p. Nothing is installed on the host and nothing survives [Lab.Close].
//
// An error for which errors.Is(err, [ErrMachine]) holds says that a machine or the emulator died, not that a script failed:
// emulation on a busy host does that at times, so callers boot again once. No other failure is worth a retry.
package lab
