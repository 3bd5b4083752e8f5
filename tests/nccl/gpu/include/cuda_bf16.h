// Says that bfloat16 is there, which NCCL's header asks.
#pragma once
#define __CUDA_BF16_TYPES_EXIST__ 1
