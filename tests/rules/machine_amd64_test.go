package rules

import "debug/elf"

const nativeMachine = elf.EM_X86_64
