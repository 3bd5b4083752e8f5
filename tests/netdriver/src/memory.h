/*
 * The memory of messages: the host's, or a GPU's, which the processor cannot touch: CUDA copies to it and from it. Regions are of the
 * kind that --memory names.
 */
#ifndef NETDRIVER_MEMORY_H
#define NETDRIVER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "plugin.h"

enum memory_kind {
	MEMORY_HOST,
	MEMORY_CUDA,   /* a GPU's, registered by regMr */
	MEMORY_DMABUF, /* a GPU's, registered by regMrDmaBuf, or in version 5, which has no such call, by regMr */
};

/* memory_use chooses the kind and loads CUDA for it, as a program has done that uses NCCL; it dies when it cannot. Call it before any
 * thread is started and before the plugin is loaded. */
void memory_use(enum memory_kind kind, const char *libcuda);
enum memory_kind memory_kind(void);

/* memory_pointers: the NCCL_PTR_ bits that a plugin has to offer for the kind. */
int memory_pointers(const struct net *net);

/* Device memory; it dies when there is none. */
void *memory_allocate(size_t size);
void memory_free(void *base);

/* memory_is_device: the address lies in memory that memory_allocate gave. */
bool memory_is_device(const void *at);

/* Copies to and from a region, of whatever kind. */
void memory_put(void *to, const void *from, size_t size);
void memory_get(void *to, const void *from, size_t size);

/* memory_reg registers a part of a region as NCCL does; the descriptor of a DMA-BUF is closed before it returns. */
ncclResult_t memory_reg(struct net *net, void *comm, void *data, size_t size, void **mhandle);

/* memory_dmabuf returns a descriptor of the pages that the range of device memory lies in, and its offset there; it dies when CUDA gives none. */
int memory_dmabuf(const void *data, size_t size, size_t *offset);

#endif
