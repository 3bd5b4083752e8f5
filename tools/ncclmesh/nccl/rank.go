package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// UniqueID is what the ranks of a communicator have in common: one of them makes it, and hands it to the others.
type UniqueID [128]byte

// UniqueID makes one. This process must stay until all ranks have met.
func (l *Library) UniqueID() (UniqueID, error) {
	id, result := out[UniqueID](l.getUniqueID, 0)
	if result != 0 {
		return id, l.ncclError("ncclGetUniqueId", result, 0)
	}
	return id, nil
}

// A Rank is the part of one GPU in a communicator, with two buffers of its memory.
type Rank struct {
	l       *Library
	device  int32
	name    string
	context uintptr
	stream  uintptr
	buffers [2]uintptr
	bytes   int
	comm    uintptr
}

// The buffers of a rank: what is sent, and what is received.
const (
	Send = iota
	Recv
)

// Rank returns a part for the GPU of that number. It has no buffers and is in no communicator.
func (l *Library) Rank(device int) (*Rank, error) {
	number, result := out[int32](l.deviceGet, 0, uintptr(device))
	if result != 0 {
		return nil, l.cudaError("cuDeviceGet", result)
	}
	r := &Rank{l: l, device: number}
	name := make([]byte, 256)
	if result := l.deviceGetName.memory(name, 0, uintptr(len(name)), uintptr(number)); result != 0 {
		return nil, l.cudaError("cuDeviceGetName", result)
	}
	r.name, _, _ = strings.Cut(string(name), "\x00")
	if r.context, result = out[uintptr](l.contextRetain, 0, uintptr(number)); result != 0 {
		return nil, l.cudaError("cuDevicePrimaryCtxRetain", result)
	}
	if result := l.contextSet.call(r.context); result != 0 {
		return nil, errors.Join(l.cudaError("cuCtxSetCurrent", result), r.Close())
	}
	if r.stream, result = out[uintptr](l.streamCreate, 0, 0); result != 0 {
		return nil, errors.Join(l.cudaError("cuStreamCreate", result), r.Close())
	}
	return r, nil
}

// Name returns the GPU's name.
func (r *Rank) Name() string { return r.name }

// FreeBytes returns how much of the GPU's memory is free.
func (r *Rank) FreeBytes() (int64, error) {
	free, _, result := r.l.memGetInfo.twoSizes()
	if result != 0 {
		return 0, r.l.cudaError("cuMemGetInfo", result)
	}
	return int64(free), nil
}

// Allocate makes both buffers, of so many bytes each. It is called once.
func (r *Rank) Allocate(bytes int) error {
	for i := range r.buffers {
		at, result := out[uintptr](r.l.memAlloc, 0, uintptr(bytes))
		if result != 0 {
			return fmt.Errorf("allocate %d bytes: %w", bytes, r.l.cudaError("cuMemAlloc", result))
		}
		r.buffers[i] = at
	}
	r.bytes = bytes
	return nil
}

// Write copies into a buffer, from an offset on.
func (r *Rank) Write(buffer, offset int, from []byte) error {
	at, err := r.at(buffer, offset, len(from))
	if err != nil || len(from) == 0 {
		return err
	}
	if result := r.l.memcpyToDevice.memory(from, 1, at, uintptr(len(from))); result != 0 {
		return r.l.cudaError("cuMemcpyHtoD", result)
	}
	if result := r.l.contextSynchronize.call(); result != 0 {
		return r.l.cudaError("cuCtxSynchronize", result)
	}
	return nil
}

// Read copies out of a buffer, from an offset on.
func (r *Rank) Read(buffer, offset int, to []byte) error {
	at, err := r.at(buffer, offset, len(to))
	if err != nil || len(to) == 0 {
		return err
	}
	if result := r.l.memcpyToHost.memory(to, 0, at, uintptr(len(to))); result != 0 {
		return r.l.cudaError("cuMemcpyDtoH", result)
	}
	return nil
}

// at returns where a part of a buffer is.
func (r *Rank) at(buffer, offset, bytes int) (uintptr, error) {
	if offset < 0 || bytes < 0 || offset+bytes > r.bytes {
		return 0, fmt.Errorf("%d bytes at %d: the buffers have %d", bytes, offset, r.bytes)
	}
	return r.buffers[buffer] + uintptr(offset), nil
}

// Join makes the rank one of a communicator. It returns when all ranks have come, and cannot be interrupted.
func (r *Rank) Join(id UniqueID, ranks, rank int) error {
	comm, result := commInitRank(r.l.commInitRank, ranks, id, rank)
	if result != 0 {
		return r.l.ncclError("ncclCommInitRank", result, 0)
	}
	r.comm = comm
	return nil
}

// A Place is a part of a buffer.
type Place struct{ Buffer, Offset int }

// The two numbers of nccl.h that are used: ncclFloat32, and ncclSum.
const (
	float32Type = 7
	sum         = 0
)

// AllReduce begins to sum so many float32 of all ranks.
func (r *Rank) AllReduce(from, to Place, count int) error {
	return r.begin("ncclAllReduce", r.l.allReduce, from, to, count, count, count, float32Type, sum)
}

// AllGather begins to collect so many float32 of each rank, in their order.
func (r *Rank) AllGather(from, to Place, count, ranks int) error {
	return r.begin("ncclAllGather", r.l.allGather, from, to, count, count*ranks, count, float32Type)
}

// ReduceScatter begins to sum so many float32 for each rank.
func (r *Rank) ReduceScatter(from, to Place, count, ranks int) error {
	return r.begin("ncclReduceScatter", r.l.reduceScatter, from, to, count*ranks, count, count, float32Type, sum)
}

// Broadcast begins to send so many float32 of a rank to all.
func (r *Rank) Broadcast(from, to Place, count, root int) error {
	return r.begin("ncclBroadcast", r.l.broadcast, from, to, count, count, count, float32Type, root)
}

// begin calls a collective that reads sent float32 and writes received ones. args follow the two buffers.
func (r *Rank) begin(name string, f fn, from, to Place, sent, received int, args ...int) error {
	source, err := r.at(from.Buffer, from.Offset, 4*sent)
	if err != nil {
		return err
	}
	target, err := r.at(to.Buffer, to.Offset, 4*received)
	if err != nil {
		return err
	}
	words := []uintptr{source, target}
	for _, a := range args {
		words = append(words, uintptr(a))
	}
	if result := f.call(append(words, r.comm, r.stream)...); result != 0 {
		return r.l.ncclError(name, result, r.comm)
	}
	return nil
}

const notReady = 600 // CUDA_ERROR_NOT_READY

// Wait returns when all that has begun is done. When the context ends, or the communicator has failed, what has begun is given
// up, and the communicator cannot be used any more.
func (r *Rank) Wait(ctx context.Context) error {
	for {
		switch result := r.l.streamQuery.call(r.stream); result {
		case 0:
			return nil
		case notReady:
		default:
			return r.abort(r.l.cudaError("cuStreamQuery", result))
		}
		state, result := out[int32](r.l.commGetAsyncError, 1, r.comm)
		if result != 0 {
			return r.abort(r.l.ncclError("ncclCommGetAsyncError", result, r.comm))
		}
		if state != 0 && state != inProgress {
			return r.abort(r.l.ncclError("a collective", state, r.comm))
		}
		if ctx.Err() != nil {
			return r.abort(context.Cause(ctx))
		}
		runtime.Gosched()
	}
}

const inProgress = 7 // ncclInProgress

// abort ends the communicator, and returns why.
func (r *Rank) abort(err error) error {
	r.l.commAbort.call(r.comm) // the error that is told is the first
	r.comm = 0
	return err
}

// Close gives back what the rank holds. What has begun must be done.
func (r *Rank) Close() error {
	var errs []error
	if r.comm != 0 {
		if result := r.l.commDestroy.call(r.comm); result != 0 {
			errs = append(errs, r.l.ncclError("ncclCommDestroy", result, 0))
		}
	}
	for _, at := range r.buffers {
		if at != 0 {
			if result := r.l.memFree.call(at); result != 0 {
				errs = append(errs, r.l.cudaError("cuMemFree", result))
			}
		}
	}
	if r.stream != 0 {
		if result := r.l.streamDestroy.call(r.stream); result != 0 {
			errs = append(errs, r.l.cudaError("cuStreamDestroy", result))
		}
	}
	if result := r.l.contextRelease.call(uintptr(r.device)); result != 0 {
		errs = append(errs, r.l.cudaError("cuDevicePrimaryCtxRelease", result))
	}
	r.comm, r.stream, r.buffers = 0, 0, [2]uintptr{}
	return errors.Join(errs...)
}
