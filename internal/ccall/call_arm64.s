#include "textflag.h"

// Offsets in the block: fn 0, args 8 to 56, result 64, extra 72.
// The assembler keeps the link register at 0(RSP).

GLOBL ·plainAddr(SB), NOPTR|RODATA, $8
DATA ·plainAddr(SB)/8, $plain(SB)
GLOBL ·errnoAddr(SB), NOPTR|RODATA, $8
DATA ·errnoAddr(SB)/8, $errno(SB)
GLOBL ·outAddr(SB), NOPTR|RODATA, $8
DATA ·outAddr(SB)/8, $out(SB)

TEXT plain(SB), NOSPLIT, $16-0
	MOVD R0, 8(RSP)
	MOVD R0, R9
	MOVD 8(R9), R0
	MOVD 16(R9), R1
	MOVD 24(R9), R2
	MOVD 32(R9), R3
	MOVD 40(R9), R4
	MOVD 48(R9), R5
	MOVD 0(R9), R10
	CALL (R10)
	MOVD 8(RSP), R9
	MOVD R0, 64(R9)
	MOVD $0, R0
	RET

TEXT errno(SB), NOSPLIT, $32-0
	MOVD R0, 8(RSP)
	MOVD 72(R0), R10
	CALL (R10)
	MOVD R0, 16(RSP) // errno's address, the same for the whole call
	MOVW ZR, (R0)
	MOVD 8(RSP), R9
	MOVD 8(R9), R0
	MOVD 16(R9), R1
	MOVD 24(R9), R2
	MOVD 32(R9), R3
	MOVD 40(R9), R4
	MOVD 48(R9), R5
	MOVD 56(R9), R6
	MOVD 0(R9), R10
	CALL (R10)
	MOVD 8(RSP), R9
	MOVD R0, 64(R9)
	MOVD 16(RSP), R10
	MOVWU (R10), R10
	MOVD R10, 72(R9)
	MOVD $0, R0
	RET

TEXT out(SB), NOSPLIT, $16-0
	MOVD R0, 8(RSP)
	MOVD R0, R9
	MOVD 8(R9), R0
	MOVD 16(R9), R1
	ADD $72, R9, R2
	MOVD 0(R9), R10
	CALL (R10)
	MOVD 8(RSP), R9
	MOVD R0, 64(R9)
	MOVD $0, R0
	RET
