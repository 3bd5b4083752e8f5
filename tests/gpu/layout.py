"""Where the plugin, the driver and the fake lie: the same in a checkout and in what `make gpu-pack` packs."""

import os
from pathlib import Path


class Layout:
    def __init__(self, root=None, build=None):
        self.root = Path(root) if root else Path(__file__).resolve().parents[2]
        self.build = Path(build).resolve() if build else self.root / "build"
        self.plugin = self.build / "libnccl-net-mesh.so"
        self.netdriver = self.build / "netdriver"
        self.ibverbs = self.build / "fakeverbs/libibverbs.so.1"
        self.fakenet = self.build / "fakeverbs/fakenet"
        self.topology = self.root / "tests/fakeverbs/triangle.txt"
        self.worker = Path(__file__).resolve().parent / "worker.py"

    def missing(self):
        """What is not there, as paths."""
        files = [self.plugin, self.netdriver, self.ibverbs, self.fakenet, self.topology, self.worker]
        programs = [self.netdriver, self.fakenet]
        return [str(f) for f in files if not f.is_file() or f in programs and not os.access(f, os.X_OK)]
