/*
 * libncclmesh: one-sided communication for programs that do not use NCCL. A rank writes into registered memory of any other rank, over
 * all cables between them, through other nodes and despite failed cables, and the other rank waits for a signal.
 *
 *     cc program.c -lncclmesh                  (or dlopen: the library needs nothing but the C library)
 *
 * # A program
 *
 *     sender                                          receiver
 *     ncclmeshCommInitRank(&comm, 2, "10.0.0.1:5000", rank)                       on both, with NCCL_MESH_KEY set to one secret
 *     ncclmeshConnect(comm, 1 - rank, 0, buffer, size)                            on both, with the same tag
 *     ncclmeshConnectionSetup(comm)                                               on all ranks
 *     ncclmeshGetConnection(comm, 1 - rank, 0, &conn)
 *     fill buffer
 *     ncclmeshPutWithSignal(conn, 0, 0, size)   -->   ncclmeshWait(conn, -1)      returns when the data is in the buffer
 *     ncclmeshWait(conn, -1)                    <--   ncclmeshSignal(conn)        when the buffer may be overwritten
 *
 * # Results
 *
 * Every function returns an ncclmeshResult_t unless it says otherwise. After a result that is not ncclmeshSuccess the text of
 * ncclmeshGetLastError tells what failed, where, and what to do. A call with a bad argument changes nothing. Output arguments are
 * written on success only.
 *
 * # Order
 *
 * Puts are not ordered among each other. A signal arrives after the data of all puts that this rank made before to the same rank, and
 * after all its earlier signals to that rank. Each signal arrives once, also when cables fail.
 *
 * # Threads
 *
 * Every function may be called from any thread, at the same time as others, with three exceptions: one thread at a time waits on a
 * connection; ranks make their collective calls (marked so) in the same order; and no call of a communicator is made while or after
 * ncclmeshCommDestroy has it, except calls that wait already, which return an error. The library has threads of its own. A forked child
 * must not use the library: its calls return ncclmeshSystemError.
 *
 * # Memory
 *
 * Buffers are the caller's. They must stay mapped until they are deregistered or the communicator is destroyed. Adapters access them
 * directly: a process that forks should have its buffers from ncclmeshAlloc, or use MADV_DONTFORK. Locked memory must be allowed
 * (ulimit -l) where RDMA is used. Memory that the library hands out is never moved, and is valid until the communicator is destroyed.
 *
 * # Time-outs
 *
 * Time-outs are in milliseconds; -1 waits for ever. A call whose time-out has passed returns ncclmeshInProgress, has lost nothing, and
 * may be called again. A wait never outlasts the peer: if its process dies, or no path to it is left for NCCL_MESH_LANE_WAIT, the call returns
 * ncclmeshRemoteError.
 *
 * # Settings
 *
 * The environment variables of the NCCL plugin hold here too (NCCL_MESH_KEY, NCCL_IB_HCA, NCCL_SOCKET_IFNAME and others). They are
 * read when the first communicator of the process is made.
 *
 * # Counterparts of MSCCL++'s C interface
 *
 * The functions cover those of MSCCL++'s header of April 2023. They are not binary compatible with it, and their names differ.
 *
 *     mscclppGetUniqueId                    ncclmeshGetUniqueId
 *     mscclppCommInitRank                   ncclmeshCommInitRank, which needs a secret (NCCL_MESH_KEY)
 *     mscclppCommInitRankFromId             ncclmeshCommInitRankFromId
 *     mscclppBootstrapAllGather             ncclmeshBootstrapAllGather
 *     mscclppBootstrapBarrier               ncclmeshBootstrapBarrier
 *     mscclppCommDestroy                    ncclmeshCommDestroy, which stops the proxies too
 *     mscclppGetErrorString                 ncclmeshGetErrorString; ncclmeshGetLastError tells more
 *     mscclppConnect                        ncclmeshConnect, without transport and adapter: all cables are used
 *     mscclppConnectionSetup                ncclmeshConnectionSetup
 *     mscclppGetAllDeviceConnections        ncclmeshGetAllConnections
 *     mscclppGetDeviceConnection            ncclmeshGetConnection
 *     mscclppProxyLaunch, mscclppProxyStop  ncclmeshProxyLaunch, ncclmeshProxyStop
 *     mscclppCommRank, mscclppCommSize      ncclmeshCommRank, ncclmeshCommSize
 *     mscclppSetBootstrapConnTimeout        ncclmeshSetBootstrapTimeout
 *     mscclppDefaultLogHandler              ncclmeshDefaultLogHandler
 *     mscclppSetLogHandler                  ncclmeshSetLogHandler
 *     mscclppRegisterBuffer                 ncclmeshRegisterBuffer
 *     mscclppRegisteredBufferWrite          ncclmeshRegisteredBufferWrite, which names the rank that it writes to
 *
 *     of a device connection, on a GPU      on a processor               pushed to the FIFO, by a GPU or a processor
 *     put                                   ncclmeshPut                  ncclmeshTriggerPut
 *     signal                                ncclmeshSignal               ncclmeshTriggerSignal
 *     putWithSignal                         ncclmeshPutWithSignal        ncclmeshTriggerPut | ncclmeshTriggerSignal
 *     putWithSignalAndFlush                 ncclmeshPutWithSignalAndFlush  all three, then ncclmeshFifoExecuted
 *     flush                                 ncclmeshFlush                ncclmeshTriggerFlush, then ncclmeshFifoExecuted
 *     wait                                  ncclmeshWait                 a loop on *conn->epoch
 *     epochIncrement                        ncclmeshEpochIncrement       -
 *     fifo.push                             -                            ncclmeshFifoPush
 */
#ifndef NCCLMESH_H
#define NCCLMESH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The results. 0 to 6 have the meaning of MSCCL++'s and of NCCL's. */
typedef enum {
	ncclmeshSuccess = 0,
	ncclmeshUnhandledCudaError = 1, /* never returned: the library calls no CUDA function */
	ncclmeshSystemError = 2,        /* a system call, a driver or an adapter of this node failed */
	ncclmeshInternalError = 3,      /* an error of the library's own */
	ncclmeshInvalidArgument = 4,
	ncclmeshInvalidUsage = 5,       /* the call is not allowed in this state, or a setting is not accepted */
	ncclmeshRemoteError = 6,        /* another rank, or every path to it, has failed */
	ncclmeshInProgress = 7,         /* the time-out has passed: call again */
	ncclmeshNumResults = 8
} ncclmeshResult_t;

/* A rank of a job. */
typedef struct ncclmeshComm *ncclmeshComm_t;

/* Memory that all ranks have registered. */
typedef struct ncclmeshBuffer *ncclmeshBuffer_t;

/* Identifies a job. It contains a secret: any process that has it may join, and write to the memory of all ranks. */
#define NCCLMESH_UNIQUE_ID_BYTES 128
typedef struct {
	char bytes[NCCLMESH_UNIQUE_ID_BYTES];
} ncclmeshUniqueId;

/* Where memory lies. */
typedef enum {
	ncclmeshHostMemory = 0, /* a processor can read and write it */
	ncclmeshGpuMemory = 1   /* only devices can */
} ncclmeshMemoryKind;

/*
 * A queue by which a processor or a GPU requests puts and signals of one connection without a call, and which a proxy executes: see
 * ncclmeshFifoPush. The memory is page-aligned, of NCCLMESH_FIFO_BYTES; a program that uses a GPU maps it there, for instance with
 * cudaHostRegister. All words have the byte order of the machine.
 */
#define NCCLMESH_FIFO_SLOTS 128
#define NCCLMESH_FIFO_BYTES 2304
typedef struct {
	uint64_t head;        /* triggers that producers have claimed; they add to it */
	uint64_t pad0[7];
	uint64_t tail;        /* triggers that were executed; only the proxy writes it */
	uint64_t pad1[7];
	uint64_t failure;     /* 0, or the ncclmeshResult_t of the first trigger that failed; only the proxy writes it */
	uint64_t pad2[15];
	uint64_t slots[NCCLMESH_FIFO_SLOTS][2]; /* two words for each trigger; trigger n is in slot n % 128 */
} ncclmeshFifo;

/* One end of a connection. It belongs to the library, is not to be changed, and is valid until the communicator is destroyed. */
typedef struct {
	int remoteRank;
	int tag;
	void *localBuffer;
	uint64_t localSize;    /* bytes */
	uint64_t remoteSize;   /* bytes of the other side's buffer */
	const uint64_t *epoch; /* raised by the other side's signals; host memory, to be loaded with acquire */
	ncclmeshFifo *fifo;
	uint64_t handle;       /* the library's */
} ncclmeshConn;

/* ---- Start and end ---- */

/*
 * Makes the id of a job. One process makes it, usually that of rank 0, and passes it to the others by any means. The process serves
 * the start of the job, and has to live until all ranks have destroyed their communicators. Does not wait.
 */
ncclmeshResult_t ncclmeshGetUniqueId(ncclmeshUniqueId *id);

/*
 * Joins the job of nranks ranks as the given one; rank 0 listens at address, "address:port" or "name:port", which has to be an
 * address of its own node. All ranks pass the same address. NCCL_MESH_KEY has to be set, to the same secret on all nodes: nobody
 * joins without it. Collective. Waits until all ranks have joined, for the bootstrap time-out (ncclmeshRemoteError; the text names the ranks
 * that are missing).
 */
ncclmeshResult_t ncclmeshCommInitRank(ncclmeshComm_t *comm, int nranks, const char *address, int rank);

/* Joins the job of an id as the given one of nranks ranks. Collective. Waits as ncclmeshCommInitRank does. */
ncclmeshResult_t ncclmeshCommInitRankFromId(ncclmeshComm_t *comm, int nranks, const ncclmeshUniqueId *id, int rank);

/*
 * Ends this rank's part in the job, stops its proxies, and frees what the library has handed out for it. The buffers are the
 * caller's again when it returns ncclmeshSuccess. Requests that are outstanding may be lost, and other ranks get ncclmeshRemoteError from then
 * on: call ncclmeshFlush and ncclmeshBootstrapBarrier before. NULL is ncclmeshSuccess. Does not wait for other ranks.
 */
ncclmeshResult_t ncclmeshCommDestroy(ncclmeshComm_t comm);

ncclmeshResult_t ncclmeshCommRank(ncclmeshComm_t comm, int *rank);
ncclmeshResult_t ncclmeshCommSize(ncclmeshComm_t comm, int *size);

/*
 * Sets how long the collective calls wait for other ranks, in milliseconds above 0: 30000 unless it is called. It holds for all
 * communicators of the process, and for calls that begin later.
 */
ncclmeshResult_t ncclmeshSetBootstrapTimeout(int64_t milliseconds);

/*
 * Exchanges size bytes of each rank. data has nranks parts of size bytes, in the order of the ranks; the caller has filled its own, and
 * gets the others. For small data, as it goes through one process. Collective. Waits for all ranks.
 */
ncclmeshResult_t ncclmeshBootstrapAllGather(ncclmeshComm_t comm, void *data, size_t size);

/* Waits until all ranks have called it. Collective. */
ncclmeshResult_t ncclmeshBootstrapBarrier(ncclmeshComm_t comm);

/* ---- Connections ---- */

/*
 * Makes a connection with a rank, which may be the caller's own, whose local buffer is size bytes of host memory. Both ranks call it with the
 * same tag, any number; a tag distinguishes the connections with one rank. The two buffers may differ in size; connections may share a buffer.
 * There is no limit of connections. Usable after ncclmeshConnectionSetup. Does not wait.
 */
ncclmeshResult_t ncclmeshConnect(ncclmeshComm_t comm, int remoteRank, int tag, void *buffer, size_t size);

/*
 * ncclmeshConnect with GPU memory. dmaBuf is the descriptor of a DMA-BUF and offset the place of the buffer in it, in bytes, or dmaBuf is
 * -1, and the adapter finds the memory by its address (nvidia_peermem). The descriptor has to stay open until ncclmeshConnectionSetup has returned.
 */
ncclmeshResult_t ncclmeshConnectMemory(ncclmeshComm_t comm, int remoteRank, int tag, void *buffer, size_t size,
				       ncclmeshMemoryKind kind, int dmaBuf, uint64_t offset);

/*
 * Sets up all connections that were made since the last time, on all ranks. Collective: ranks without a new connection call it too. It
 * fails on all ranks if it fails on one. If a rank has not connected to one that has connected to it, the text names both; the other
 * connections stay, and the call may be repeated. Waits for all ranks.
 */
ncclmeshResult_t ncclmeshConnectionSetup(ncclmeshComm_t comm);

/* The connection with a rank and a tag that is set up; ncclmeshInvalidArgument if there is none. */
ncclmeshResult_t ncclmeshGetConnection(ncclmeshComm_t comm, int remoteRank, int tag, const ncclmeshConn **conn);

/*
 * All connections that are set up, in the order of the calls of ncclmeshConnect. The array belongs to the library, and is valid
 * until the communicator is destroyed; later connections are not added to it.
 */
ncclmeshResult_t ncclmeshGetAllConnections(ncclmeshComm_t comm, const ncclmeshConn *const **conns, int *n);

/* ---- Transfers: offsets and sizes are in bytes, of 64 bits ---- */

/*
 * Writes size bytes at srcOffset of the local buffer to dstOffset of the remote one. It returns when the request is queued: the source
 * must not change before ncclmeshFlush has returned. It waits only while 1024 requests to the rank are outstanding.
 */
ncclmeshResult_t ncclmeshPut(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size);

/* Raises the other side's epoch by one, after the data of all earlier puts to that rank. Returns when the request is queued. */
ncclmeshResult_t ncclmeshSignal(const ncclmeshConn *conn);

/* ncclmeshPut and then ncclmeshSignal, as one request. */
ncclmeshResult_t ncclmeshPutWithSignal(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size);

/* ncclmeshPutWithSignal and then ncclmeshFlush. */
ncclmeshResult_t ncclmeshPutWithSignalAndFlush(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size,
					       int64_t timeout);

/* Reads size bytes at srcOffset of the remote buffer to dstOffset of the local one. The data is there after ncclmeshFlush. */
ncclmeshResult_t ncclmeshGet(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size);

/*
 * Waits until all earlier requests of this process to the rank are done: the data of puts has arrived and their sources may be
 * overwritten; the data of gets is there. At once if none is outstanding.
 */
ncclmeshResult_t ncclmeshFlush(const ncclmeshConn *conn, int64_t timeout);

/*
 * Waits until the other side has signalled once more than at the last wait: the first call waits for the first signal, and so on. All data
 * that was put before the signal is visible when it returns. Signals that had arrived when the peer died still count; with buffers in GPU
 * memory those of the last milliseconds may not.
 */
ncclmeshResult_t ncclmeshWait(const ncclmeshConn *conn, int64_t timeout);

/* The next signal raises the other side's epoch by one more, so that it answers one more wait there. Sends nothing. */
ncclmeshResult_t ncclmeshEpochIncrement(const ncclmeshConn *conn);

/* Returns how far the other side's signals have raised the epoch. All data that was put before them is visible after it. */
static inline uint64_t ncclmeshEpoch(const ncclmeshConn *conn)
{
	return __atomic_load_n(conn->epoch, __ATOMIC_ACQUIRE);
}

/* ---- Registered buffers: writes to any offset, and signal words, of every connected rank ---- */

/*
 * Registers size bytes of host memory with all ranks. Collective: the sizes may differ, and every rank calls it in the same order, after
 * ncclmeshConnectionSetup has connected the ranks that are to use it. It fails on all ranks if it fails on one.
 */
ncclmeshResult_t ncclmeshRegisterBuffer(ncclmeshComm_t comm, void *buffer, size_t size, ncclmeshBuffer_t *registered);

/* ncclmeshRegisterBuffer with GPU memory: see ncclmeshConnectMemory. */
ncclmeshResult_t ncclmeshRegisterMemory(ncclmeshComm_t comm, void *buffer, size_t size, ncclmeshMemoryKind kind, int dmaBuf,
					uint64_t offset, ncclmeshBuffer_t *registered);

/*
 * Ends the registration. Collective. The memory is the caller's again when it returns ncclmeshSuccess. No request may be outstanding
 * that uses it.
 */
ncclmeshResult_t ncclmeshDeregisterBuffer(ncclmeshBuffer_t registered);

/* Writes size bytes at srcOffset of the local buffer src to dstOffset of the buffer dst of a rank, and of no other. As ncclmeshPut. */
ncclmeshResult_t ncclmeshRegisteredBufferWrite(ncclmeshBuffer_t dst, int rank, uint64_t dstOffset, ncclmeshBuffer_t src,
					       uint64_t srcOffset, uint64_t size);

/* Reads size bytes at srcOffset of the buffer src of a rank to dstOffset of the local buffer dst. As ncclmeshGet. */
ncclmeshResult_t ncclmeshRegisteredBufferRead(ncclmeshBuffer_t src, int rank, uint64_t srcOffset, ncclmeshBuffer_t dst,
					      uint64_t dstOffset, uint64_t size);

/* What a signal does to a word of 64 bits. */
typedef enum { ncclmeshSet = 1, ncclmeshAdd = 2, ncclmeshIncrement = 3 } ncclmeshSignalOp;

/*
 * Changes the word at an offset of the buffer of a rank, a multiple of 8, after the data of all earlier writes to that rank. Ranks may add
 * to the same word. value is not used by ncclmeshIncrement.
 *
 * The buffer may be GPU memory. A kernel of that rank may poll the word, with a volatile load and then __threadfence_system(), without a
 * call of its process; it sees all data that was written before the signal. The rank's library changes the word by an adapter, which
 * reads it and writes the new value: the rank itself may change a word only while no rank signals it.
 */
ncclmeshResult_t ncclmeshRegisteredBufferSignal(ncclmeshBuffer_t buffer, int rank, uint64_t offset, ncclmeshSignalOp op,
						uint64_t value);

/*
 * Stores in *value the word at an offset of the local buffer, a multiple of 8. All data that was written before the signals which it shows is
 * visible after it. A word in GPU memory is read by an adapter: the call takes microseconds, or waits while no port of this node has a link, for
 * NCCL_MESH_LANE_WAIT at most (ncclmeshSystemError).
 */
ncclmeshResult_t ncclmeshRegisteredBufferLoad(ncclmeshBuffer_t buffer, uint64_t offset, uint64_t *value);

/*
 * Waits until the word at an offset of the local buffer is at least value. A word in GPU memory is read by an adapter again and again, so that
 * the call may return a millisecond late: a kernel that needs the data should poll the word itself.
 */
ncclmeshResult_t ncclmeshRegisteredBufferWait(ncclmeshBuffer_t buffer, uint64_t offset, uint64_t value, int64_t timeout);

/* ncclmeshFlush for a rank. */
ncclmeshResult_t ncclmeshRegisteredBufferFlush(ncclmeshBuffer_t buffer, int rank, int64_t timeout);

/* ---- Proxies and FIFOs ---- */

/*
 * Starts the thread that executes the triggers of the FIFOs of all connections, those of a later setup too. A FIFO that waits delays no
 * other one.
 */
ncclmeshResult_t ncclmeshProxyLaunch(ncclmeshComm_t comm);

/* Executes what was pushed before, waits until all ranks have called it, and stops the thread. Collective. */
ncclmeshResult_t ncclmeshProxyStop(ncclmeshComm_t comm);

/* What a trigger requests: one, or a sum. The order is put, signal, flush. */
enum {
	ncclmeshTriggerPut = 1,
	ncclmeshTriggerSignal = 2,
	ncclmeshTriggerFlush = 4 /* the trigger counts as executed when all earlier requests to the rank are done */
};

/* Sizes and offsets of triggers are below it, in bytes. */
#define NCCLMESH_TRIGGER_LIMIT ((uint64_t)1 << 40)

/*
 * The words of trigger n, for producers that store them themselves:
 *
 *     word 0   bits  0-39  size
 *              bits 40-55  bits 24-39 of the offset in the source
 *              bits 56-58  kind
 *              bits 59-62  0
 *              bit  63     1 if n / 128 is even, else 0: it tells that the slot is full
 *     word 1   bits  0-39  offset in the destination
 *              bits 40-63  bits 0-23 of the offset in the source
 */
static inline void ncclmeshTriggerWords(uint64_t words[2], uint64_t n, int kind, uint64_t dstOffset, uint64_t srcOffset, uint64_t size)
{
	words[0] = size | srcOffset >> 24 << 40 | (uint64_t)kind << 56 | (~(n / NCCLMESH_FIFO_SLOTS) & 1) << 63;
	words[1] = dstOffset | srcOffset << 40;
}

/* Returns how many triggers were executed: trigger n was if n is below it. */
static inline uint64_t ncclmeshFifoExecuted(const ncclmeshFifo *fifo)
{
	return __atomic_load_n(&fifo->tail, __ATOMIC_ACQUIRE);
}

/*
 * Returns ncclmeshSuccess, or the result of the first trigger that failed. After a failure nothing later is executed, but counts as
 * executed, so that no producer waits for ever.
 */
static inline ncclmeshResult_t ncclmeshFifoFailure(const ncclmeshFifo *fifo)
{
	return (ncclmeshResult_t)__atomic_load_n(&fifo->failure, __ATOMIC_ACQUIRE);
}

/*
 * Pushes a trigger, and stores its number in *number unless that is NULL. It waits while the FIFO is full, so a proxy has to run. It calls
 * no function, and may be called by any number of threads at once. It returns ncclmeshInvalidArgument if a size or offset is too
 * large, or the kind is none.
 *
 * A GPU does the same, with the scope of the system for each step:
 *
 *     n = atomicAdd_system(&fifo->head, 1)
 *     while (n >= tail + NCCLMESH_FIFO_SLOTS) load fifo->tail, volatile
 *     store word 1 of slot n % NCCLMESH_FIFO_SLOTS, volatile
 *     __threadfence_system()
 *     store word 0, volatile
 *
 * The data that a put sends has to be written before word 0.
 */
static inline ncclmeshResult_t ncclmeshFifoPush(ncclmeshFifo *fifo, int kind, uint64_t dstOffset, uint64_t srcOffset, uint64_t size,
						uint64_t *number)
{
	uint64_t words[2], n, *slot;

	if (kind < 1 || kind > 7 || dstOffset >= NCCLMESH_TRIGGER_LIMIT || srcOffset >= NCCLMESH_TRIGGER_LIMIT ||
	    size >= NCCLMESH_TRIGGER_LIMIT)
		return ncclmeshInvalidArgument;
	n = __atomic_fetch_add(&fifo->head, 1, __ATOMIC_RELAXED);
	while (n >= ncclmeshFifoExecuted(fifo) + NCCLMESH_FIFO_SLOTS)
		;
	ncclmeshTriggerWords(words, n, kind, dstOffset, srcOffset, size);
	slot = fifo->slots[n % NCCLMESH_FIFO_SLOTS];
	__atomic_store_n(&slot[1], words[1], __ATOMIC_RELAXED);
	__atomic_store_n(&slot[0], words[0], __ATOMIC_RELEASE);
	if (number)
		*number = n;
	return ncclmeshSuccess;
}

/* ---- Memory, log, errors ---- */

/* Makes size bytes of host memory: page-aligned, zeroed, and not inherited by forked children. */
ncclmeshResult_t ncclmeshAlloc(void **memory, size_t size);

/* Frees memory of ncclmeshAlloc, which must not be registered any more. NULL is ncclmeshSuccess. */
ncclmeshResult_t ncclmeshFree(void *memory);

/* Returns a text for a result; a static string, also for a number that is none. */
const char *ncclmeshGetErrorString(ncclmeshResult_t result);

/* Returns what failed in the last call of this thread that failed; valid until its next call. "" if none has. */
const char *ncclmeshGetLastError(void);

/* The levels of log lines. */
typedef enum { ncclmeshLogWarn = 1, ncclmeshLogInfo = 2, ncclmeshLogDebug = 3 } ncclmeshLogLevel;

/* A log handler gets one line, without a newline. It may be called from any thread, must not call the library, and must not keep the text. */
typedef void (*ncclmeshLogHandler_t)(ncclmeshLogLevel level, const char *text);

/* Sets the log handler; ncclmeshDefaultLogHandler unless it is called. Lines other than warnings need NCCL_DEBUG=INFO. */
ncclmeshResult_t ncclmeshSetLogHandler(ncclmeshLogHandler_t handler);

/* Writes the line to the standard error output. */
void ncclmeshDefaultLogHandler(ncclmeshLogLevel level, const char *text);

/* Returns the version of the library; a static string. */
const char *ncclmeshGetVersion(void);

#ifdef __cplusplus
}
#endif

#endif
