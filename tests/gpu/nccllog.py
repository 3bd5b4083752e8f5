"""What NCCL's log (NCCL_DEBUG=INFO) says about the network, the channels and the algorithms."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, List, Optional

# Numbers that older versions of NCCL print in place of names.
ALGORITHMS = {"0": "TREE", "1": "RING", "2": "COLLNET_DIRECT", "3": "COLLNET_CHAIN", "4": "NVLS", "5": "NVLS_TREE", "6": "PAT"}
PROTOCOLS = {"0": "LL", "1": "LL128", "2": "SIMPLE"}
RING = 4  # NCCL_TOPO_PATTERN_RING

VERSION = re.compile(r"NCCL version (\S+)")
VTABLE = re.compile(r"NET/Plugin: Loaded net plugin (\S+) \(?v(\d+)\)?")
NETWORK = re.compile(r"Using network (\S+)")
NODES = re.compile(r"nRanks (\d+) nNodes (\d+)")
CHANNELS = re.compile(r"(\d+) coll channels, .*?(\d+) p2p channels, (\d+) p2p channels per peer")
GRAPH = re.compile(r"Pattern (\d+), crossNic (\d+), nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+), type (\S+?), sameChannels")
VIA = re.compile(r"via (NET/[^\s/]+/\d+(?:/\S+)?)")
CHOSEN = re.compile(r"NCCL INFO (\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
LANES = re.compile(r"NET/Mesh : (\S+ -> \S+) conn \d+: (lane 0 .*)")
CARRIED = re.compile(r"NET/Mesh : .*?closed after (\d+) messages, (\d+) bytes")
WARNING = re.compile(r"NCCL WARN (.*)")


@dataclass
class Facts:
    version: Optional[str] = None
    vtable: Optional[int] = None  # of the plugin; None where NCCL's own transport is used
    network: Optional[str] = None
    nodes: Optional[int] = None
    channels: Optional[int] = None
    p2p_channels: Optional[int] = None
    p2p_channels_per_peer: Optional[int] = None
    ring_channels: Optional[int] = None  # that the search of the topology found
    ring_speed: Optional[float] = None  # GB/s of each of them between nodes
    via: Counter = field(default_factory=Counter)
    chosen: Counter = field(default_factory=Counter)  # (function, algorithm, protocol)
    lanes: Dict[str, str] = field(default_factory=dict)  # of each pair of nodes
    messages: int = 0
    bytes: int = 0
    warnings: List[str] = field(default_factory=list)

    @property
    def speed(self):
        """GB/s between nodes, in all channels, that NCCL counts on."""
        return None if self.ring_speed is None else self.ring_speed * self.ring_channels


def parse(text):
    """The facts of a log; of those that recur, from the first communicator."""
    f = Facts()

    def first(name, value):
        if getattr(f, name) is None:
            setattr(f, name, value)

    for line in text.splitlines():
        if m := VERSION.search(line):
            first("version", m[1])
        elif m := VTABLE.search(line):
            first("vtable", int(m[2]))
        elif m := NETWORK.search(line):
            first("network", m[1])
        elif m := CHANNELS.search(line):
            for name, value in zip(("channels", "p2p_channels", "p2p_channels_per_peer"), m.groups()):
                first(name, int(value))
        elif m := GRAPH.search(line):
            if int(m[1]) == RING:
                first("ring_channels", int(m[3]))
                first("ring_speed", float(m[5]))
        elif m := CHOSEN.search(line):
            f.chosen[m[1], ALGORITHMS.get(m[3], m[3].upper()), PROTOCOLS.get(m[4], m[4].upper())] += 1
        elif m := LANES.search(line):
            f.lanes.setdefault(m[1], m[2])
        elif m := CARRIED.search(line):
            f.messages += int(m[1])
            f.bytes += int(m[2])
        elif m := VIA.search(line):
            f.via[m[1]] += 1
        elif m := WARNING.search(line):
            f.warnings.append(m[1])
        if m := NODES.search(line):
            first("nodes", int(m[2]))
    return f


def contradictions(chosen, algorithm, protocol):
    """Collectives for which NCCL chose something other than it was told to, as text."""
    return ["%s: %s %s" % key for key in sorted(chosen)
            if key[0] not in ("Send", "Recv", "SendRecv") and (key[1] != algorithm.upper() or key[2] != protocol.upper())]
