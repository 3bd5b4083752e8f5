"""Collectives through a store: everybody puts what it has there, and takes what the others have."""

import os
import pickle
import socket
import socketserver
import threading
import time

from .. import FAULT, VALUE, Tensor


def is_available():
    return True


def is_nccl_available():
    return True


class ReduceOp:
    SUM, MAX = "SUM", "MAX"


class TCPStore:
    def __init__(self, host, port, world, is_master, timeout):
        if is_master:
            self.server = _Server(("127.0.0.1" if host == "127.0.0.1" else "", port), _Handler)
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            try:
                self.socket = socket.create_connection((host, port))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self.file, self.mu = self.socket.makefile("rwb"), threading.Lock()

    def _call(self, *request):
        with self.mu:
            pickle.dump(request, self.file)
            self.file.flush()
            answer = pickle.load(self.file)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set(self, key, value):
        self._call("set", key, value)

    def get(self, key):
        return self._call("get", key)

    def wait(self, keys, timeout):
        for key in keys:
            self._call("get", key)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True

    def __init__(self, *args):
        self.values, self.changed, self.lost = {}, threading.Condition(), 0
        super().__init__(*args)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        s = self.server
        orderly = False
        try:
            while True:
                verb, key, *value = pickle.load(self.rfile)
                with s.changed:
                    if verb == "set":
                        s.values[key] = value[0]
                        s.changed.notify_all()
                        answer = None
                        orderly |= key.startswith("left-")  # the worker's last word
                    else:
                        s.changed.wait_for(lambda: key in s.values or s.lost and not key.startswith("left-"))
                        answer = s.values[key] if key in s.values else RuntimeError(
                            "ncclRemoteError: remote process exited or there was a network error")
                pickle.dump(answer, self.wfile)
        except (EOFError, OSError):
            with s.changed:
                s.lost += not orderly
                s.changed.notify_all()


class PrefixStore:
    def __init__(self, prefix, store):
        self.prefix, self.store = prefix, store

    def set(self, key, value):
        self.store.set(self.prefix + "/" + key, value)

    def get(self, key):
        return self.store.get(self.prefix + "/" + key)


class ProcessGroup:
    def __init__(self, store, ranks, rank):
        self.store, self.ranks, self.rank, self.calls, self.groups = store, list(ranks), rank, 0, 0

    def exchange(self, value):
        """The values of all ranks of the group."""
        self.calls += 1
        self.store.set("%d/%d" % (self.calls, self.rank), value)
        return [self.store.get("%d/%d" % (self.calls, r)) for r in self.ranks]

    def child(self, ranks):
        self.groups += 1
        return ProcessGroup(PrefixStore("group%d-%s" % (self.groups, ranks), self.store), ranks, self.rank)


world = None


def init_process_group(backend, store, rank, world_size, timeout, device_id=None):
    global world
    world = ProcessGroup(store, range(world_size), rank)
    _log_init(rank, world_size)
    world.exchange(rank)


def destroy_process_group():
    global world
    world.exchange("bye")
    _log("closed", "node-a -> node-b conn 1: closed after 10 messages, 1000 bytes, 0 grants waited for", plugin=True)
    world = None


def new_group(ranks):
    return world.child(ranks)


def split_group(split_ranks):
    return world.child(next(r for r in split_ranks if world.rank in r))


class Work:
    """What is left to do; what nobody waits for is never done."""

    def __init__(self, rest=lambda: None):
        self.wait = rest


def all_reduce(x, op=ReduceOp.SUM, group=None, async_op=False):
    group = group or world

    def work():
        _chosen("AllReduce", x)
        columns = zip(*group.exchange(x.values))
        x.values = [sum(c) if op == ReduceOp.SUM else max(c) for c in columns]
        _corrupt("all_reduce", x)

    if not async_op:
        work()
    return Work(work)


def broadcast(x, root):
    _chosen("Broadcast", x)
    x.values = world.exchange(x.values if world.rank == root else None)[root]
    _corrupt("broadcast", x)


def all_gather_into_tensor(out, x):
    _chosen("AllGather", x)
    out.values = [v for part in world.exchange(x.values) for v in part]
    _corrupt("all_gather", out)


def reduce_scatter_tensor(out, x):
    _chosen("ReduceScatter", x)
    n = len(out)
    out.values = [sum(c) for c in zip(*world.exchange(x.values))][world.rank * n:(world.rank + 1) * n]
    _corrupt("reduce_scatter", out)


def all_to_all_single(out, x):
    n = len(x) // len(world.ranks)
    out.values = [v for part in world.exchange(x.values) for v in part[world.rank * n:(world.rank + 1) * n]]
    _corrupt("all_to_all", out)


def isend():
    pass


def irecv():
    pass


class P2POp:
    def __init__(self, op, tensor, peer):
        self.op, self.tensor, self.peer = op, tensor, peer


def batch_isend_irecv(ops):
    """Sends between two ranks match in order."""
    sent = world.exchange([(o.peer, o.tensor.values) for o in ops if o.op is isend])
    taken = {}
    for o in ops:
        if o.op is irecv:
            mine = [values for peer, values in sent[o.peer] if peer == world.rank]
            o.tensor.values = mine[taken.setdefault(o.peer, 0)]
            taken[o.peer] += 1
            _corrupt("sendrecv", o.tensor)
    return [Work()]


def _corrupt(op, x):
    if FAULT == "corrupt" and VALUE == op and len(x) > 3 and world.rank == 1:
        x.values[3] += 1
    if FAULT == "hang" and VALUE == str(world.rank):
        time.sleep(600)


# NCCL's log

def _log(*text, plugin=False):
    with open(os.environ["NCCL_DEBUG_FILE"], "a") as f:
        f.write("host:1:2 [0] NCCL INFO %s%s\n" % ("NET/Mesh : " if plugin else "", text[-1]))


def _log_init(rank, size):
    mesh = os.environ["NCCL_NET"] == "mesh" and FAULT != "network"
    if rank == 0:
        _log("NCCL version 2.28.9+cuda13.0")
    if mesh:
        _log("NET/Plugin: Loaded net plugin Mesh (v11)")
        tcp = os.environ["NCCL_MESH_TRANSPORT"] == "tcp"
        _log("node-a -> node-b conn 1: lane 0 " + (
            "p0 -> p1 tcp 192.168.1.1 -> 192.168.1.2" if tcp else "rdma0:1 -> rdma1:1 mtu 4096 gid 3"), plugin=True)
    _log("Using network %s" % ("Mesh" if mesh else "Socket"))
    _log("ncclCommInitRankConfig comm 0x1 rank %d nRanks %d nNodes %d localRanks 1 localRank 0 MNNVL 0" % (rank, size, size))
    _log("Pattern 4, crossNic 0, nChannels 4, bw 6.000000/6.000000, type LOC/PHB, sameChannels 1")
    channels = 64 if FAULT == "channels" else 8
    _log("%d coll channels, %d collnet channels, 0 nvls channels, 8 p2p channels, 2 p2p channels per peer" % (channels, channels))


def _chosen(function, x):
    algorithm, protocol = os.environ.get("NCCL_ALGO", "Ring"), os.environ.get("NCCL_PROTO", "Simple")
    if FAULT == "protocol" and VALUE == protocol:
        protocol = "Simple"
    if world.rank == 0:
        _log("%s: %d Bytes -> Algo %s proto %s channel{Lo..Hi}={0..1}" % (
            function, len(x) * x.element_size(), algorithm.upper(), protocol.upper()))
