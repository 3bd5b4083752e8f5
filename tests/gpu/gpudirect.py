"""Whether the machine's adapters can reach the memory of its GPU, as the plugin finds it out."""

import ctypes
from pathlib import Path

# Attributes of a device, from cuda.h.
GPU_DIRECT_RDMA_SUPPORTED = 116
DMA_BUF_SUPPORTED = 124

# Files of the kernel modules that register GPU memory by its address.
PEER_MEMORY = ("kernel/mm/memory_peers/nv_mem/version", "kernel/mm/memory_peers/nv_mem_nc/version", "module/nvidia_peermem/version")


def attributes(name="libcuda.so.1"):
    """What CUDA says about the first GPU, by number of the attribute; empty where it does not answer."""
    try:
        cuda = ctypes.CDLL(name)
    except OSError:
        return {}
    device, value, found = ctypes.c_int(), ctypes.c_int(), {}
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return {}
    for number in (GPU_DIRECT_RDMA_SUPPORTED, DMA_BUF_SUPPORTED):
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0:
            found[str(number)] = value.value
    return found


def hindrance(found, sysfs="/sys"):
    """Why adapters cannot reach GPU memory, given CUDA's attributes; empty if they can."""
    sysfs = Path(sysfs)
    if not any("ACTIVE" in state.read_text() for state in sysfs.glob("class/infiniband/*/ports/*/state")):
        return "no RDMA port is active"
    if not found.get(str(GPU_DIRECT_RDMA_SUPPORTED)):
        return "CUDA does not say that adapters can reach the memory of this GPU (GPU_DIRECT_RDMA_SUPPORTED)"
    if not any((sysfs / file).exists() for file in PEER_MEMORY) and not found.get(str(DMA_BUF_SUPPORTED)):
        return "nvidia-peermem is not loaded, and CUDA exports no DMA-BUFs (DMA_BUF_SUPPORTED)"
    return ""
