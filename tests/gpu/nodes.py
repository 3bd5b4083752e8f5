"""The nodes that the ranks are on: a triangle of network namespaces, or this machine's loopback interface for all."""

import subprocess
import time
from pathlib import Path

import supervise

NODES = ("a", "b", "c")


class Unavailable(Exception):
    """Such nodes cannot be had here; the text says why."""


class Fabric:
    """Three nodes cabled as a triangle, with the fake's RDMA devices.

    With namespaces every cable is a veth pair, and a further interface leads to all other nodes. Without, the nodes
    share the loopback interface, and only the fake's devices make them a triangle.
    """

    def __init__(self, layout, directory, namespaces, patience=30):
        self.layout, self.directory, self.namespaces = layout, Path(directory), namespaces
        self.holder = None
        self.directory.mkdir(parents=True)
        verb = "up" if namespaces else "init"
        argv = [str(layout.fakenet), verb, "-d", str(self.directory), str(layout.topology)]
        if not namespaces:
            # The topology's own subnet for management does not exist here.
            plain = self.directory / "topology"
            plain.write_text(layout.topology.read_text() + "mgmt none\n")
            argv[-1] = str(plain)
        log = self.directory.with_suffix(".log")
        with open(log, "wb") as out:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + patience
        while p.poll() is None and "up" not in log.read_text().split():
            if time.monotonic() > deadline:
                supervise.stop([p])
                raise Unavailable("fakenet %s took more than %d s: %s" % (verb, patience, log.read_text().strip()))
            time.sleep(0.02)
        if p.poll() not in (None, 0) or namespaces and p.poll() is not None:
            supervise.stop([p])
            raise Unavailable("fakenet %s: %s" % (verb, log.read_text().strip()))
        self.holder = p if namespaces else None

    def close(self):
        if self.holder is not None:
            supervise.stop([self.holder])
            self.holder = None

    def address(self, node):
        """Where the other nodes reach it."""
        if not self.namespaces:
            return "127.0.0.1"
        for line in (self.directory / "hosts").read_text().splitlines():
            fields = line.split()
            if node in fields[1:]:
                return fields[0]
        raise KeyError(node)

    def bootstrap(self):
        """The interface for everything but the data of NCCL's ranks."""
        return "mgmt0" if self.namespaces else "lo"

    def interfaces(self):
        """All interfaces of a node, the one for setting connections up first."""
        return "mgmt0,p0,p1" if self.namespaces else "lo"

    def command(self, node, argv, library_path=None):
        """The command that runs argv on the node."""
        if not self.namespaces:
            return list(argv)
        # fakenet puts the fake before every other libibverbs; only the plugin is to find it.
        keep = ["LD_LIBRARY_PATH=" + library_path] if library_path else ["-u", "LD_LIBRARY_PATH"]
        return [str(self.layout.fakenet), "exec", "-d", str(self.directory), node, "env"] + keep + list(argv)

    def environment(self, node, lanes):
        """What a process on the node needs to use the lanes."""
        if lanes == "fake":
            return {"FAKEVERBS_DIR": str(self.directory), "FAKEVERBS_NODE": node,
                    "NCCL_MESH_SYSFS": str(self.directory / "nodes" / node / "sys"),
                    "NCCL_MESH_IBVERBS": str(self.layout.ibverbs), "NCCL_MESH_TRANSPORT": "rdma",
                    "NCCL_MESH_GDR": "0",  # the fake copies by the processor, which cannot reach a GPU's memory
                    "NCCL_SOCKET_IFNAME": self.bootstrap()}
        if lanes == "gdr":  # the machine's own adapters; NCCL is to use them for GPU memory at any distance, in both directions
            return {"NCCL_MESH_TRANSPORT": "rdma", "NCCL_MESH_GDR": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1",
                    "NCCL_SOCKET_IFNAME": self.bootstrap()}
        if lanes == "tcp":
            return {"NCCL_MESH_TRANSPORT": "tcp", "NCCL_SOCKET_IFNAME": self.interfaces()}
        if lanes == "socket":
            return {"NCCL_SOCKET_IFNAME": self.bootstrap()}
        raise ValueError("lanes %r: want fake, tcp, gdr or socket" % lanes)
