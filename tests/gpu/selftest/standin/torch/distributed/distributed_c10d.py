"""Aborting, as PyTorch 2.6 and later offer it."""

import torch.distributed as dist


def _abort_process_group():
    dist.world = None
