"""Uses all of ncclmesh.py, by two ranks in two threads of one process. It ends at the first surprise."""

import sys
import threading

import ncclmesh

lines = []  # of the log
ncclmesh.set_log_handler(lambda level, text: lines.append((level, text)))
ID = ncclmesh.unique_id()
BUFFERS = [ncclmesh.alloc(4096), bytearray(4096)]


def expect(got, want):
    if got != want:
        raise AssertionError("%r, want %r" % (got, want))


def fails(result, text, f, *arguments):
    try:
        f(*arguments)
    except ncclmesh.Error as e:
        expect((e.result, isinstance(e, ncclmesh.Timeout)), (result, result == 7))
        if text not in str(e):
            raise AssertionError("%r is not in %r" % (text, str(e)))
        return
    raise AssertionError("no error: " + text)


ignored = []  # exceptions that Python cannot raise, such as those in __del__
sys.unraisablehook = ignored.append
fails(4, "0 bytes", ncclmesh.alloc, 0)
expect([str(e.exc_value) for e in ignored], [])
sys.unraisablehook = sys.__unraisablehook__


def use(rank):
    other, own = 1 - rank, BUFFERS[rank]
    with ncclmesh.Comm(2, rank, id=ID) as comm:
        expect((comm.rank, comm.size), (rank, 2))
        expect(comm.all_gather(bytes([rank, 7])), [b"\0\7", b"\1\7"])
        fails(4, "tag 5", comm.connection, other, 5)
        comm.connect(other, 5, own)
        comm.setup()
        peer = comm.connection(other, 5)
        expect((peer.rank, peer.tag, peer.local_size, peer.remote_size), (other, 5, 4096, 4096))
        own[:4] = b"own%d" % rank
        peer.put(8, 0, 4)
        peer.signal()
        peer.wait()
        expect(bytes(own[8:12]), b"own%d" % other)
        fails(4, "of the remote buffer", peer.put, 4096, 0, 1)
        fails(7, "signal 2 has not arrived within 10ms", peer.wait, 0.01)
        peer.increment_epoch()
        comm.barrier()
        peer.put_with_signal_and_flush(16, 0, 4)
        peer.wait(600)
        peer.wait(600)
        expect(peer.epoch, 3)
        peer.get(32, 8, 4)
        peer.flush()
        expect(bytes(own[32:36]), b"own%d" % rank)
        buffer = comm.register(own)
        buffer.write(other, 64, buffer, 0, 4)
        buffer.signal(other, 128, ncclmesh.ADD, 41)
        buffer.signal(other, 128)
        buffer.wait(128, 42)
        expect(buffer.load(128), 42)
        fails(4, "multiple of 8", buffer.load, 130)
        expect(bytes(own[64:68]), b"own%d" % other)
        buffer.read(other, 0, buffer, 256, 4)
        buffer.flush(other)
        expect(bytes(own[256:260]), b"own%d" % other)
        fails(4, "multiple of 8", buffer.signal, other, 3)
        buffer.deregister()
        fails(4, "is no buffer", buffer.flush, other, 1)
        fails(5, "launch", lambda: comm.stop_proxies())
        comm.launch_proxies()
        comm.stop_proxies()
        comm.barrier()
    fails(5, "closed", peer.wait)


def run(rank):
    try:
        use(rank)
    except BaseException as e:  # the other thread may wait for this one
        print("rank %d: %s: %s" % (rank, type(e).__name__, e), file=sys.stderr, flush=True)
        failed.append(rank)


failed = []
ncclmesh.set_bootstrap_timeout(600)
for wrong in ({}, {"id": ID, "address": "10.0.0.1:1"}, {"id": b"short"}):
    try:
        ncclmesh.Comm(2, 0, **wrong)
    except ValueError:
        continue
    sys.exit("no error: %r" % wrong)
fails(4, "want more than 0", ncclmesh.set_bootstrap_timeout, 0)
threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
if failed:
    sys.exit(1)
expect(any("build " + ncclmesh.version() in text for _, text in lines), True)
print("ok")
