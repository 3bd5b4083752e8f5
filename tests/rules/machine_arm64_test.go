package rules

import "debug/elf"

const nativeMachine = elf.EM_AARCH64
