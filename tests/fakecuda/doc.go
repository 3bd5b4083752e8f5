// Package fakecuda holds a libcuda.so.1 for tests on machines without a GPU, in
// C, and the Go tests of it.
//
// It has the functions of CUDA's driver API that a network plugin calls, and
// what a test needs to make, fill and read GPU memory. Device memory is a memfd
// that is mapped twice: a load or store by the processor at the address that
// programs get is a SIGSEGV, and cuMemcpyHtoD and cuMemcpyDtoH use the other
// mapping. A DMA-BUF is a descriptor of that memfd. Its file position is where
// the exported range starts in the memfd, so that a range that starts inside an
// allocation can be exported as well. A freed address is used again for the next
// allocation of the same size, which has another BUFFER_ID.
//
// The function fakecuda_alias(address, length) returns where device memory can be
// read and written, or NULL. It stands for nvidia-peermem: a fake adapter that
// finds it, with dlsym(RTLD_DEFAULT, "fakecuda_alias"), may register device
// memory by its address. A program that loads the library must load it with
// RTLD_GLOBAL for that. fakecuda_flushes() returns how often
// cuFlushGPUDirectRDMAWrites has succeeded.
//
// Variables of C's environment, which are read at each call, say what the devices
// can do. A list such as 1,0 has one number for each device; its last number
// holds for all further devices.
//
//	FAKECUDA_DEVICES     number of devices, 1
//	FAKECUDA_DEVICE      device of the current context, 0
//	FAKECUDA_NO_CONTEXT  1: no thread has a context
//	FAKECUDA_PRIMARY     1: the device's primary context is active, 0
//	FAKECUDA_VERSION     version of the driver, 12080
//	FAKECUDA_GDR         attribute 116, GPU_DIRECT_RDMA_SUPPORTED, 1
//	FAKECUDA_VMM_GDR     attribute 110, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1
//	FAKECUDA_DMABUF      attribute 124, DMA_BUF_SUPPORTED, 1
//	FAKECUDA_FLUSH       attribute 117, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 1
//	FAKECUDA_ORDERING    attribute 118, GPU_DIRECT_RDMA_WRITES_ORDERING, 100
//	FAKECUDA_INTEGRATED  attribute 18, INTEGRATED, 0
package fakecuda
