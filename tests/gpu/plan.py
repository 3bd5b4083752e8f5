"""The steps of a run: which ranks do what over which lanes, with which settings, for how long at most."""

import argparse
import os
from dataclasses import dataclass, field
from typing import Dict

from nodes import NODES

MIB = 1 << 20

# Settings that a run must not inherit, as they change what is tested.
CLEARED = ("NCCL_", "TORCH_NCCL_", "FAKEVERBS_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")

# Every rank is a node of its own (NCCL_HOSTID), and all of its traffic goes through the network.
COMMON = {
    "NCCL_MNNVL_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0", "NCCL_IB_DISABLE": "1", "NCCL_CONF_FILE": "/dev/null",
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH,TUNING",
    # PyTorch's own supervision would hide what NCCL says, or wait a minute before it ends a process.
    "TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Step:
    work: str
    lanes: str  # tcp, fake, and gdr, which is GPU memory over the machine's own adapters: the plugin's; socket: NCCL's own transport
    ranks: int
    timeout: float
    mps: bool = True  # may share the GPU with MPS
    reload: bool = False  # NCCL unloads the plugin with the last communicator
    env: Dict[str, str] = field(default_factory=dict)

    @property
    def name(self):
        return "%s-%s-%d" % (self.work, self.lanes, self.ranks)

    @property
    def seconds(self):
        """After that no case begins: the rest is for the start, and for the case under way."""
        return max(self.timeout - 15, self.timeout / 2)


def steps(lanes=("fake", "tcp", "gdr"), ranks=(2, 3)):
    """All steps of a run, the most telling first, as time may run out."""
    most, gdr = max(ranks), "gdr" in lanes
    lanes = [lane for lane in lanes if lane != "gdr"]
    plan = [Step("collectives", lane, n, 100) for n in ranks for lane in lanes]
    quiet = {"NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH"}  # no line for each collective
    plan += [Step("busbw", lane, n, 45, env=quiet) for n in ranks for lane in ("socket",) + tuple(lanes)]
    for lane in lanes:
        plan += [
            Step("communicators", lane, most, 45),
            Step("again", lane, min(ranks), 60, reload=True),
            # A process that ends with kernels on the GPU takes MPS's other clients down.
            Step("abort", lane, most, 60, mps=False, env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
            Step("death", lane, most, 60, mps=False),
        ]
    if gdr:
        plan += [Step("collectives", "gdr", min(ranks), 100), Step("busbw", "gdr", min(ranks), 45, env=quiet)]
    return plan


def inherited(environ):
    """What is left of the caller's environment."""
    return {k: v for k, v in environ.items() if not k.startswith(CLEARED)}


def environment(base, step, rank, fabric, layout, directory, extra=None):
    """The environment of a rank of the step, whose files are in directory."""
    env = dict(base)
    env.update(COMMON)
    node = NODES[rank]
    env.update({"NCCL_HOSTID": "mesh-" + node, "NCCL_DEBUG_FILE": os.path.join(str(directory), "nccl%d.log" % rank)})
    env.setdefault("CUDA_VISIBLE_DEVICES", "0")
    if step.lanes == "socket":
        env.update({"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"})
    else:
        env.update({"NCCL_NET": "mesh", "NCCL_NET_PLUGIN": str(layout.plugin)})
        if step.reload:
            # NCCL 2.28.3 to 2.29.7 forget the plugin's name, and look for libnccl-net.so.
            env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(layout.build), env.get("LD_LIBRARY_PATH")]))
        else:
            env["NCCL_NET_PLUGIN_REF_COUNT"] = "1"
    env.update(fabric.environment(node, step.lanes))
    env.update(step.env)
    env.update(extra or {})
    return env


def size(text):
    """Bytes of a number with K, M or G."""
    units = {"K": 1 << 10, "M": MIB, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    try:
        n = int(number)
    except ValueError:
        n = 0
    if n <= 0:
        raise argparse.ArgumentTypeError("%r: want a positive number, also with K, M or G" % text)
    return n * unit
