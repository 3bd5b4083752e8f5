#include "textflag.h"

// Offsets in the block: fn 0, args 8 to 56, result 64, extra 72.
// The frames are 16 or 32 bytes, which with the saved BP and the return address keeps SP a multiple of 16 at the inner call.

GLOBL ·plainAddr(SB), NOPTR|RODATA, $8
DATA ·plainAddr(SB)/8, $plain(SB)
GLOBL ·errnoAddr(SB), NOPTR|RODATA, $8
DATA ·errnoAddr(SB)/8, $errno(SB)
GLOBL ·outAddr(SB), NOPTR|RODATA, $8
DATA ·outAddr(SB)/8, $out(SB)

TEXT plain(SB), NOSPLIT, $16-0
	MOVQ DI, 0(SP)
	MOVQ DI, R11
	MOVQ 8(R11), DI
	MOVQ 16(R11), SI
	MOVQ 24(R11), DX
	MOVQ 32(R11), CX
	MOVQ 40(R11), R8
	MOVQ 48(R11), R9
	XORL AX, AX // no vector registers, should fn be variadic
	MOVQ 0(R11), R10
	CALL R10
	MOVQ 0(SP), R11
	MOVQ AX, 64(R11)
	XORL AX, AX
	RET

TEXT errno(SB), NOSPLIT, $32-0
	MOVQ DI, 16(SP)
	MOVQ 72(DI), AX
	CALL AX
	MOVQ AX, 24(SP) // errno's address, the same for the whole call
	MOVL $0, (AX)
	MOVQ 16(SP), R11
	MOVQ 8(R11), DI
	MOVQ 16(R11), SI
	MOVQ 24(R11), DX
	MOVQ 32(R11), CX
	MOVQ 40(R11), R8
	MOVQ 48(R11), R9
	MOVQ 56(R11), R10
	MOVQ R10, 0(SP) // the seventh argument goes on the stack
	XORL AX, AX
	MOVQ 0(R11), R10
	CALL R10
	MOVQ 16(SP), R11
	MOVQ AX, 64(R11)
	MOVQ 24(SP), R10
	MOVL (R10), R10
	MOVQ R10, 72(R11)
	XORL AX, AX
	RET

TEXT out(SB), NOSPLIT, $16-0
	MOVQ DI, 0(SP)
	MOVQ DI, R11
	MOVQ 8(R11), DI
	MOVQ 16(R11), SI
	LEAQ 72(R11), DX
	XORL AX, AX
	MOVQ 0(R11), R10
	CALL R10
	MOVQ 0(SP), R11
	MOVQ AX, 64(R11)
	XORL AX, AX
	RET
