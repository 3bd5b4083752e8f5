"""A KV cache handed from a prefill node to a decode node.

The prefill node (rank 0) computes the cache of one request after another, and puts each layer when it is ready; the decode node (rank 1) reads
the cache in place, and says when its slot may be used again.

    NCCL_MESH_KEY=... python3 kvcache.py 10.0.0.1:5000 0       and on the other node: ... kvcache.py 10.0.0.1:5000 1
"""

import sys

import ncclmesh

LAYERS = 8
LAYER = 1 << 20  # bytes of one layer of a request
REQUESTS = 6
SLOTS = 2  # requests whose caches the decode node holds at once


def place(request, layer):
    """Returns where a layer of a request is in the cache."""
    return (request % SLOTS * LAYERS + layer) * LAYER


def contents(request, layer):
    """Stands for the computation of a layer."""
    return bytes((request * 31 + layer * 7 + i) % 256 for i in range(256)) * (LAYER // 256)


def prefill(peer, cache):
    for request in range(REQUESTS):
        if request >= SLOTS:
            peer.wait()  # the slot is free
        for layer in range(LAYERS):  # a layer is sent while the next one is computed
            at = place(request, layer)
            cache[at:at + LAYER] = contents(request, layer)
            peer.put_with_signal(at, at, LAYER)
        print("rank 0: request", request, "sent")


def decode(peer, cache):
    for request in range(REQUESTS):
        for layer in range(LAYERS):
            peer.wait()  # the layer is here
            at = place(request, layer)
            if cache[at:at + LAYER] != contents(request, layer):
                sys.exit("request %d, layer %d: wrong bytes" % (request, layer))
        peer.signal()
        print("rank 1: request", request, "decoded")


address, rank = sys.argv[1], int(sys.argv[2])
with ncclmesh.Comm(2, rank, address=address) as comm:
    cache = ncclmesh.alloc(SLOTS * LAYERS * LAYER)
    comm.connect(1 - rank, 0, cache)
    comm.setup()
    peer = comm.connection(1 - rank, 0)
    (prefill if rank == 0 else decode)(peer, cache)
    peer.flush()
    comm.barrier()
