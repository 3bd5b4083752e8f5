// This file isolates the tuner's answers in C memory, where NCCL's threads look
// them up without calling Go. They are written once, before NCCL gets their address.
// There is one table for each kind of mesh, and it is never freed.

package main

// #include <stdlib.h>
// #include "plugin.h"
// #include "tuner_abi.h"
import "C"

import (
	"math"
	"runtime/debug"
	"sync"
	"unsafe"

	"ncclmesh/tuner"
)

// Constants that are equal in C and in Go.
const (
	_ = uint(C.MESH_TUNER_FUNCS-tuner.NumFuncs) + uint(tuner.NumFuncs-C.MESH_TUNER_FUNCS)
	_ = uint(C.MESH_TUNER_CLASSES-tuner.NumClasses) + uint(tuner.NumClasses-C.MESH_TUNER_CLASSES)
	_ = uint(C.MESH_TUNER_CHOICES-tuner.NumChoices) + uint(tuner.NumChoices-C.MESH_TUNER_CHOICES)

	// A cell is an index in NCCL's table of costs.
	_ = uint(C.NCCL_NUM_PROTOCOLS-tuner.NumProtos) + uint(tuner.NumProtos-C.NCCL_NUM_PROTOCOLS)
	_ = uint(C.NCCL_ALGO_TREE-tuner.Tree) + uint(tuner.Tree-C.NCCL_ALGO_TREE)
	_ = uint(C.NCCL_ALGO_RING-tuner.Ring) + uint(tuner.Ring-C.NCCL_ALGO_RING)
	_ = uint(C.NCCL_ALGO_PAT-tuner.PAT) + uint(tuner.PAT-C.NCCL_ALGO_PAT)
	_ = uint(C.NCCL_PROTO_SIMPLE-tuner.Simple) + uint(tuner.Simple-C.NCCL_PROTO_SIMPLE)
	_ = uint(C.NCCL_FUNC_ALL_GATHER-tuner.AllGather) + uint(tuner.AllGather-C.NCCL_FUNC_ALL_GATHER)
	_ = uint(math.MaxUint8 - (tuner.PAT*tuner.NumProtos + tuner.NumProtos - 1))
)

// precisionRanks is the largest number of ranks for which NCCL does not treat a ring
// that sums up 8-bit floats as a last resort.
const precisionRanks = 8

var tuners struct {
	mu    sync.Mutex
	known map[*tuner.Table]*C.struct_mesh_tuner
}

// meshTuner recovers a panic and returns 0, because an error would end the job.
//
//export meshTuner
func meshTuner(ranks, nodes C.size_t, logger C.ncclDebugLogger_t, masked C.int) (t C.uintptr_t) {
	defer func() {
		if v := recover(); v != nil {
			plugin.Panicked("tuner init", 0, v, debug.Stack())
			t = 0
		}
	}()
	table := plugin.Tuner(loggerFor(logger), int(ranks), int(nodes), masked != 0)
	if table == nil {
		return 0
	}
	tuners.mu.Lock()
	defer tuners.mu.Unlock()
	if tuners.known == nil {
		tuners.known = map[*tuner.Table]*C.struct_mesh_tuner{}
	}
	if tuners.known[table] == nil {
		tuners.known[table] = newTuner(table, int(ranks))
	}
	return C.uintptr_t(uintptr(unsafe.Pointer(tuners.known[table])))
}

// newTuner copies the table into C memory.
func newTuner(table *tuner.Table, ranks int) *C.struct_mesh_tuner {
	t := (*C.struct_mesh_tuner)(C.malloc(C.sizeof_struct_mesh_tuner)) // cgo's malloc does not return NULL
	*t = C.struct_mesh_tuner{}
	t.last_resorts = flag(ranks > precisionRanks)
	for f := range table.Choices {
		for class, choices := range table.Choices[f] {
			row := &t.rows[f][class]
			row.n = C.uint8_t(len(choices))
			for i, c := range choices {
				row.cell[i] = C.uint8_t(int(c.Algo)*tuner.NumProtos + int(c.Proto))
				row.channels[i] = C.uint8_t(c.Channels)
			}
			t.chunks[f][class] = C.uint32_t(table.Chunks[f][class])
		}
	}
	return t
}
