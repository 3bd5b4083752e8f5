"""One-sided communication between processes on machines that are cabled directly to each other.

A rank writes into registered memory of any other rank, over all cables between them, through other nodes and despite failed cables,
and the other rank waits for a signal. This is libncclmesh for Python, by ctypes; ncclmesh.h describes each function in full.

    import ncclmesh

    comm = ncclmesh.Comm(2, rank, address="10.0.0.1:5000")  # on both, with NCCL_MESH_KEY set to one secret
    comm.connect(1 - rank, 0, buffer)                       # on both, with the same tag; any writable buffer: bytearray, NumPy, ...
    comm.setup()                                            # on all ranks
    conn = comm.connection(1 - rank, 0)
    conn.put_with_signal(0, 0, len(buffer))                 # on one; on the other: conn.wait()

The library is libncclmesh.so, where the loader finds it, beside this file, or at the path in NCCLMESH_LIBRARY. Time-outs are in seconds;
None waits for ever. Calls that wait let other threads of Python run.
"""

import atexit
import ctypes
import os

__all__ = ["Buffer", "Comm", "Connection", "Error", "Timeout", "alloc", "set_bootstrap_timeout", "set_log_handler", "unique_id", "version"]

SUCCESS, IN_PROGRESS = 0, 7
SET, ADD, INCREMENT = 1, 2, 3  # what a signal does to a word
WARN, INFO, DEBUG = 1, 2, 3  # levels of log lines

_ID_BYTES = 128
_u64, _i64, _int, _size, _ptr = ctypes.c_uint64, ctypes.c_int64, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_Handler = ctypes.CFUNCTYPE(None, _int, ctypes.c_char_p)


class Error(Exception):
    """A call that failed. result is the number of the result: see ncclmeshResult_t."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result


class Timeout(Error):
    """The time-out has passed; nothing is lost, and the call may be made again."""


class _Conn(ctypes.Structure):
    _fields_ = [
        ("remoteRank", _int), ("tag", _int), ("localBuffer", _ptr), ("localSize", _u64), ("remoteSize", _u64),
        ("epoch", ctypes.POINTER(_u64)), ("fifo", _ptr), ("handle", _u64),
    ]


_conn = ctypes.POINTER(_Conn)

# The arguments of each function that returns a result.
_functions = {
    "GetUniqueId": [_ptr],
    "CommInitRank": [ctypes.POINTER(_ptr), _int, ctypes.c_char_p, _int],
    "CommInitRankFromId": [ctypes.POINTER(_ptr), _int, _ptr, _int],
    "CommDestroy": [_ptr],
    "SetBootstrapTimeout": [_i64],
    "BootstrapAllGather": [_ptr, _ptr, _size],
    "BootstrapBarrier": [_ptr],
    "ConnectMemory": [_ptr, _int, _int, _ptr, _size, _int, _int, _u64],
    "ConnectionSetup": [_ptr],
    "GetConnection": [_ptr, _int, _int, ctypes.POINTER(_conn)],
    "Put": [_conn, _u64, _u64, _u64],
    "Signal": [_conn],
    "PutWithSignal": [_conn, _u64, _u64, _u64],
    "Get": [_conn, _u64, _u64, _u64],
    "Flush": [_conn, _i64],
    "Wait": [_conn, _i64],
    "EpochIncrement": [_conn],
    "RegisterMemory": [_ptr, _ptr, _size, _int, _int, _u64, ctypes.POINTER(_ptr)],
    "DeregisterBuffer": [_ptr],
    "RegisteredBufferWrite": [_ptr, _int, _u64, _ptr, _u64, _u64],
    "RegisteredBufferRead": [_ptr, _int, _u64, _ptr, _u64, _u64],
    "RegisteredBufferSignal": [_ptr, _int, _u64, _int, _u64],
    "RegisteredBufferLoad": [_ptr, _u64, ctypes.POINTER(_u64)],
    "RegisteredBufferWait": [_ptr, _u64, _u64, _i64],
    "RegisteredBufferFlush": [_ptr, _int, _i64],
    "ProxyLaunch": [_ptr],
    "ProxyStop": [_ptr],
    "Alloc": [ctypes.POINTER(_ptr), _size],
    "Free": [_ptr],
    "SetLogHandler": [_Handler],
}


def _load():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libncclmesh.so")
    path = os.environ.get("NCCLMESH_LIBRARY") or (beside if os.path.exists(beside) else "libncclmesh.so")
    lib = ctypes.CDLL(path)
    for name, arguments in _functions.items():
        getattr(lib, "ncclmesh" + name).argtypes = arguments
    lib.ncclmeshGetLastError.restype = ctypes.c_char_p
    lib.ncclmeshGetVersion.restype = ctypes.c_char_p
    return lib


_lib = _load()


def _call(name, *arguments):
    result = getattr(_lib, "ncclmesh" + name)(*arguments)
    if result != SUCCESS:
        text = _lib.ncclmeshGetLastError().decode(errors="replace")
        raise (Timeout if result == IN_PROGRESS else Error)(result, text)


def _ms(seconds):
    return -1 if seconds is None else int(seconds * 1000)


def _wait(name, *arguments, timeout):
    """Calls a function that waits. Without a time-out it returns to Python now and then, where a signal such as Ctrl-C ends it."""
    while timeout is None:
        try:
            return _call(name, *arguments, 200)
        except Timeout:
            continue
    _call(name, *arguments, _ms(timeout))


def _memory(buffer):
    """Returns address, size and kind of a buffer, and an object that keeps it in place."""
    if isinstance(buffer, tuple):  # address and size
        return buffer[0], buffer[1], 0, buffer
    if hasattr(buffer, "data_ptr"):  # a tensor of PyTorch
        if not buffer.is_contiguous():
            raise ValueError("the tensor is not contiguous")
        return buffer.data_ptr(), buffer.numel() * buffer.element_size(), int(buffer.is_cuda), buffer
    view = memoryview(buffer)
    held = (ctypes.c_char * view.nbytes).from_buffer(buffer)
    return ctypes.addressof(held), view.nbytes, 0, held


def version():
    """Returns the version of the library."""
    return _lib.ncclmeshGetVersion().decode()


def unique_id():
    """Makes the id of a job, 128 bytes. The process has to live until all ranks have closed their Comm."""
    b = ctypes.create_string_buffer(_ID_BYTES)
    _call("GetUniqueId", b)
    return b.raw


def set_bootstrap_timeout(seconds):
    """Sets how long collective calls wait for other ranks."""
    _call("SetBootstrapTimeout", _ms(seconds))


_handler = None  # the library keeps its address
_default = ctypes.cast(_lib.ncclmeshDefaultLogHandler, _Handler)
atexit.register(_lib.ncclmeshSetLogHandler, _default)  # nothing may call Python once it has ended


def set_log_handler(handler):
    """Sets a function of a level and a text that gets each log line, from any thread. It must not call this module."""
    global _handler
    f = _Handler(lambda level, text: handler(level, text.decode(errors="replace")))
    _call("SetLogHandler", f)
    _handler = f


class _Memory:
    address = None  # until Alloc has succeeded

    def __init__(self, size):
        p = _ptr()
        _call("Alloc", ctypes.byref(p), size)
        self.address = p.value

    def __del__(self):
        _lib.ncclmeshFree(self.address)


def alloc(size):
    """Returns a memoryview of size zero bytes, page-aligned and not inherited by forked children. They are freed when no longer used."""
    m = _Memory(size)
    array = (ctypes.c_ubyte * size).from_address(m.address)
    array.owner = m
    return memoryview(array).cast("B")


class Comm:
    """A rank of a job of nranks ranks, with the id of the job or the "address:port" at which rank 0 listens."""

    def __init__(self, nranks, rank, id=None, address=None):
        if (id is None) == (address is None):
            raise ValueError("either the id or the address is needed")
        if id is not None and len(id) != _ID_BYTES:
            raise ValueError("an id of %d bytes, want %d" % (len(id), _ID_BYTES))
        self.rank, self.size = rank, nranks
        self._held = []  # the buffers of connections
        handle = _ptr()
        if id is not None:
            _call("CommInitRankFromId", ctypes.byref(handle), nranks, ctypes.create_string_buffer(bytes(id), _ID_BYTES), rank)
        else:
            _call("CommInitRank", ctypes.byref(handle), nranks, address.encode(), rank)
        self._handle = handle

    def close(self):
        """Ends this rank's part in the job. Flush, and then a barrier, before it make sure that no data is lost."""
        if self._handle:
            handle, self._handle = self._handle, None
            _call("CommDestroy", handle)
            self._held = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def all_gather(self, part):
        """Returns the bytes of all ranks, in order. All pass the same number of bytes."""
        n = len(part)
        data = ctypes.create_string_buffer(n * self.size)
        data[self.rank * n:(self.rank + 1) * n] = bytes(part)
        _call("BootstrapAllGather", self._handle, data, n)
        return [data.raw[i * n:(i + 1) * n] for i in range(self.size)]

    def barrier(self):
        """Waits until all ranks have called it."""
        _call("BootstrapBarrier", self._handle)

    def connect(self, rank, tag, buffer, dma_buf=-1, offset=0):
        """Makes a connection with a rank, which has to do the same with the same tag; usable after setup."""
        address, size, kind, held = _memory(buffer)
        _call("ConnectMemory", self._handle, rank, tag, address, size, kind, dma_buf, offset)
        self._held.append(held)

    def setup(self):
        """Sets up all connections. All ranks have to call it."""
        _call("ConnectionSetup", self._handle)

    def connection(self, rank, tag):
        """Returns the connection with a rank and a tag."""
        conn = _conn()
        _call("GetConnection", self._handle, rank, tag, ctypes.byref(conn))
        return Connection(self, conn)

    def register(self, buffer, dma_buf=-1, offset=0):
        """Registers a buffer with all ranks. All ranks have to call it, in the same order."""
        address, size, kind, held = _memory(buffer)
        handle = _ptr()
        _call("RegisterMemory", self._handle, address, size, kind, dma_buf, offset, ctypes.byref(handle))
        return Buffer(handle, held)

    def launch_proxies(self):
        """Starts to execute the triggers of FIFOs."""
        _call("ProxyLaunch", self._handle)

    def stop_proxies(self):
        """Executes what was pushed, and stops. All ranks have to call it."""
        _call("ProxyStop", self._handle)


class Connection:
    """One end of a connection. It can be used until the Comm is closed."""

    def __init__(self, comm, conn):
        self._comm, self._conn = comm, conn
        self.rank, self.tag = conn.contents.remoteRank, conn.contents.tag
        self.local_size, self.remote_size = conn.contents.localSize, conn.contents.remoteSize

    def _open(self):
        if not self._comm._handle:
            raise Error(5, "the Comm is closed")
        return self._conn

    def _on(self, name, *arguments):
        _call(name, self._open(), *arguments)

    def put(self, dst, src, size):
        """Writes size bytes at offset src of the local buffer to offset dst of the remote one. They must not change before flush."""
        self._on("Put", dst, src, size)

    def signal(self):
        """Raises the other side's epoch by one, after the data of all earlier puts."""
        self._on("Signal")

    def put_with_signal(self, dst, src, size):
        """put, and then signal."""
        self._on("PutWithSignal", dst, src, size)

    def put_with_signal_and_flush(self, dst, src, size, timeout=None):
        """put, signal, and then flush."""
        self.put_with_signal(dst, src, size)
        self.flush(timeout)

    def get(self, dst, src, size):
        """Reads size bytes at offset src of the remote buffer to offset dst of the local one. They are there after flush."""
        self._on("Get", dst, src, size)

    def flush(self, timeout=None):
        """Waits until all earlier requests to the rank are done."""
        _wait("Flush", self._open(), timeout=timeout)

    def wait(self, timeout=None):
        """Waits for the next signal."""
        _wait("Wait", self._open(), timeout=timeout)

    def increment_epoch(self):
        """Makes the next signal raise the other side's epoch by one more."""
        self._on("EpochIncrement")

    @property
    def epoch(self):
        """How far the other side's signals have raised the epoch."""
        return self._open().contents.epoch[0]


class Buffer:
    """Memory that all ranks have registered."""

    def __init__(self, handle, held):
        self._handle, self._held = handle, held

    def deregister(self):
        """Ends the registration. All ranks have to call it."""
        _call("DeregisterBuffer", self._handle)
        self._held = None

    def write(self, rank, dst, src, src_offset, size):
        """Writes size bytes at an offset of the local Buffer src to offset dst of this one on a rank."""
        _call("RegisteredBufferWrite", self._handle, rank, dst, src._handle, src_offset, size)

    def read(self, rank, src, dst, dst_offset, size):
        """Reads size bytes at offset src of this buffer on a rank to an offset of the local Buffer dst."""
        _call("RegisteredBufferRead", self._handle, rank, src, dst._handle, dst_offset, size)

    def signal(self, rank, offset, op=INCREMENT, value=1):
        """Changes the 64-bit word at an offset of this buffer on a rank, after the data of all earlier writes to it."""
        _call("RegisteredBufferSignal", self._handle, rank, offset, op, value)

    def load(self, offset):
        """Returns the 64-bit word at an offset of the local buffer, which may be GPU memory."""
        value = _u64()
        _call("RegisteredBufferLoad", self._handle, offset, ctypes.byref(value))
        return value.value

    def wait(self, offset, value, timeout=None):
        """Waits until the 64-bit word at an offset of the local buffer is at least value."""
        _wait("RegisteredBufferWait", self._handle, offset, value, timeout=timeout)

    def flush(self, rank, timeout=None):
        """Waits until all earlier requests to the rank are done."""
        _wait("RegisteredBufferFlush", self._handle, rank, timeout=timeout)
