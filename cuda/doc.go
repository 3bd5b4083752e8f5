// Package cuda asks the CUDA driver of this process what its GPUs can do, and
// what memory lies at an address.
//
// It never loads CUDA: [Loaded] finds the library libcuda.so.1 that the program
// has loaded, and it calls only the driver API, of which no function that is used
// here makes a context. A program may load CUDA at any time, therefore Loaded can
// be called again after it has found nothing.
//
// Methods may be called from any thread. The answers about memory depend on the
// thread: CUDA may refuse one without a context. Such a refusal is [Unknown] memory,
// never [Host] memory.
//
// Names and numbers of the driver API are those of cuda.h of CUDA 12.8.
package cuda
