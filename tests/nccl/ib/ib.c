/*
 * NCCL's own transport over verbs (src/transport/net_ib) as a plugin: the table is the one that NCCL itself would use where no
 * plugin is found. The library is linked of NCCL's host objects, which begin nothing before init is called.
 */
#include "../../netdriver/src/abi.h"

extern ncclNet_v11_t ncclNetIb __attribute__((visibility("hidden")));

__attribute__((visibility("default"))) ncclNet_v11_t ncclNetPlugin_v11;

__attribute__((constructor)) static void fill(void) { ncclNetPlugin_v11 = ncclNetIb; }
