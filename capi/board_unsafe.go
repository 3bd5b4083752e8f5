// This file isolates the boards: C finds a board by its connection's handle, and reads it
// by the layout in board.h, which equals that of package board.

package main

// #include "board.h"
import "C"

import (
	"unsafe"

	"ncclmesh/ncclnet"
	"ncclmesh/transport/board"
	"ncclmesh/transport/lane"
)

func publishBoard(comm ncclnet.Handle, b uintptr) {
	C.mesh_board_publish(C.uintptr_t(comm), C.uintptr_t(b))
}
func unpublishBoard(comm ncclnet.Handle, b uintptr) {
	C.mesh_board_unpublish(C.uintptr_t(comm), C.uintptr_t(b))
}

// Compile-time checks that both sides have the same layout.
func _() {
	var (
		w board.Words
		a board.Answer
		n board.Consumer
		b C.struct_mesh_board
		x C.struct_mesh_answer
		y C.struct_mesh_consumer
		g lane.Grant
	)

	_ = [1]bool{unsafe.Sizeof(w) - unsafe.Sizeof(b): true}
	_ = [1]bool{unsafe.Offsetof(w.Comm) - unsafe.Offsetof(b.comm): true}
	_ = [1]bool{unsafe.Offsetof(w.Disabled) - unsafe.Offsetof(b.disabled): true}
	_ = [1]bool{unsafe.Offsetof(w.Polls) - unsafe.Offsetof(b.polls): true}
	_ = [1]bool{unsafe.Offsetof(w.Head) - unsafe.Offsetof(b.head): true}
	_ = [1]bool{unsafe.Offsetof(w.Ring) - unsafe.Offsetof(b.ring): true}
	_ = [1]bool{unsafe.Offsetof(w.GrantMisses) - unsafe.Offsetof(b.grant_misses): true}
	_ = [1]bool{unsafe.Offsetof(w.Answers) - unsafe.Offsetof(b.answers): true}
	_ = [1]bool{unsafe.Offsetof(w.Consumers) - unsafe.Offsetof(b.consumers): true}
	_ = [1]bool{unsafe.Sizeof(a) - unsafe.Sizeof(x): true}
	_ = [1]bool{unsafe.Offsetof(a.State) - unsafe.Offsetof(x.state): true}
	_ = [1]bool{unsafe.Offsetof(a.N) - unsafe.Offsetof(x.n): true}
	_ = [1]bool{unsafe.Offsetof(a.Sizes) - unsafe.Offsetof(x.sizes): true}
	_ = [1]bool{unsafe.Sizeof(a.Sizes) - unsafe.Sizeof(x.sizes): true}
	_ = [1]bool{unsafe.Sizeof(n) - unsafe.Sizeof(y): true}
	_ = [1]bool{unsafe.Offsetof(n.Taken) - unsafe.Offsetof(y.taken): true}
	_ = [1]bool{unsafe.Offsetof(n.LastPoll) - unsafe.Offsetof(y.last_poll): true}
	_ = [1]bool{board.Requests - C.MESH_BOARD_REQUESTS: true}

	_ = [1]bool{lane.Window - C.MESH_RING_SLOTS: true}
	_ = [1]bool{lane.MaxSubs*lane.EntrySize - C.MESH_RING_STRIDE: true}
	_ = [1]bool{unsafe.Offsetof(g.Seq) - C.MESH_RING_SEQ: true}

	_ = [1]bool{ncclnet.HandleIndexBits - C.MESH_HANDLE_INDEX_BITS: true}
	_ = [1]bool{ncclnet.HandleGenerationBits - C.MESH_HANDLE_GENERATION_BITS: true}
	_ = [1]bool{ncclnet.HandleSlotBits - C.MESH_HANDLE_SLOT_BITS: true}
	_ = [1]bool{ncclnet.HandleIndexBits + ncclnet.HandleGenerationBits - C.MESH_HANDLE_SLOT_SHIFT: true}
	_ = [1]bool{ncclnet.HandleKindShift - C.MESH_HANDLE_KIND_SHIFT: true}
	_ = [1]bool{ncclnet.HandleKindBits - C.MESH_HANDLE_KIND_BITS: true}
	_ = [1]bool{ncclnet.KindSend - C.MESH_KIND_SEND: true}
	_ = [1]bool{ncclnet.KindRecv - C.MESH_KIND_RECV: true}
	_ = [1]bool{ncclnet.KindRequest - C.MESH_KIND_REQUEST: true}
}
