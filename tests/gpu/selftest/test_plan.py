import argparse
import unittest
from pathlib import Path

import nodes
import plan
from layout import Layout


class Place(nodes.Fabric):
    """A fabric that is only asked."""

    def __init__(self, namespaces):
        self.layout, self.directory, self.namespaces = Layout("/dist"), Path("/fabric"), namespaces


class TestPlan(unittest.TestCase):
    def test_steps(self):
        got = [s.name for s in plan.steps()]
        self.assertEqual(len(got), len(set(got)))
        for work in ("collectives", "busbw"):
            for lanes in ("fake", "tcp"):
                for n in (2, 3):
                    self.assertIn("%s-%s-%d" % (work, lanes, n), got)
        for name in ("busbw-socket-2", "busbw-socket-3", "communicators-tcp-3", "again-fake-2", "abort-tcp-3", "death-fake-3"):
            self.assertIn(name, got)
        self.assertEqual({"abort", "death"}, {s.work for s in plan.steps() if not s.mps})
        self.assertEqual({"tcp", "socket"}, {s.lanes for s in plan.steps(["tcp"], [2])})
        self.assertEqual(["collectives-gdr-2", "busbw-gdr-2"], got[-2:])  # no namespace has the machine's adapters
        self.assertEqual([], [s.name for s in plan.steps(["tcp", "fake"]) if s.lanes == "gdr"])

    def test_seconds(self):
        self.assertEqual([45, 5], [plan.Step("again", "tcp", 2, t).seconds for t in (60, 10)])

    def test_inherited(self):
        self.assertEqual({"PATH": "/bin", "CUDA_HOME": "/cuda"}, plan.inherited({
            "PATH": "/bin", "CUDA_HOME": "/cuda", "NCCL_MAX_NCHANNELS": "2", "NCCL_NET": "IB", "TORCH_NCCL_TRACE_BUFFER_SIZE": "1",
            "RANK": "3", "MASTER_ADDR": "elsewhere", "FAKEVERBS_DIR": "/other"}))

    def environment(self, step, namespaces=True, rank=1, base=None, extra=None):
        place = Place(namespaces)
        return plan.environment(base or {}, step, rank, place, place.layout, Path("/out"), extra)

    def test_environment(self):
        mine = {"NCCL_NET": "mesh", "NCCL_NET_PLUGIN": "/dist/build/libnccl-net-mesh.so", "NCCL_NET_PLUGIN_REF_COUNT": "1"}
        fake = {"FAKEVERBS_DIR": "/fabric", "FAKEVERBS_NODE": "b", "NCCL_MESH_SYSFS": "/fabric/nodes/b/sys",
                "NCCL_MESH_IBVERBS": "/dist/build/fakeverbs/libibverbs.so.1", "NCCL_MESH_TRANSPORT": "rdma",
                "NCCL_MESH_GDR": "0"}
        gdr = {"NCCL_MESH_TRANSPORT": "rdma", "NCCL_MESH_GDR": "1", "NCCL_NET_GDR_LEVEL": "SYS", "NCCL_NET_GDR_READ": "1"}
        common = dict(plan.COMMON, NCCL_HOSTID="mesh-b", NCCL_DEBUG_FILE="/out/nccl1.log", CUDA_VISIBLE_DEVICES="0")
        for name, step, namespaces, want in (
            ("fake", plan.Step("again", "fake", 2, 9), True, dict(mine, **fake, NCCL_SOCKET_IFNAME="mgmt0")),
            ("fake, loopback", plan.Step("again", "fake", 2, 9), False, dict(mine, **fake, NCCL_SOCKET_IFNAME="lo")),
            ("tcp", plan.Step("again", "tcp", 2, 9), True, dict(mine, NCCL_MESH_TRANSPORT="tcp", NCCL_SOCKET_IFNAME="mgmt0,p0,p1")),
            ("tcp, loopback", plan.Step("again", "tcp", 2, 9), False, dict(mine, NCCL_MESH_TRANSPORT="tcp", NCCL_SOCKET_IFNAME="lo")),
            ("gdr", plan.Step("again", "gdr", 2, 9), False, dict(mine, **gdr, NCCL_SOCKET_IFNAME="lo")),
            ("socket", plan.Step("again", "socket", 2, 9), True,
             {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_SOCKET_IFNAME": "mgmt0"}),
            ("setting of a step", plan.Step("abort", "socket", 2, 9, env={"NCCL_DEBUG": "WARN"}), True,
             {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_SOCKET_IFNAME": "mgmt0", "NCCL_DEBUG": "WARN"}),
        ):
            with self.subTest(name):
                self.assertEqual({**common, **want}, self.environment(step, namespaces))

    def test_nobody_caps_the_channels(self):
        for step in plan.steps():
            self.assertFalse([k for k in self.environment(step, rank=0) if "NCHANNELS" in k or "CTAS" in k], step.name)

    def test_reload(self):
        env = self.environment(plan.Step("again", "tcp", 2, 9, reload=True), base={"LD_LIBRARY_PATH": "/cuda"})
        self.assertNotIn("NCCL_NET_PLUGIN_REF_COUNT", env)
        self.assertEqual("/dist/build:/cuda", env["LD_LIBRARY_PATH"])

    def test_what_is_said_last_holds(self):
        env = self.environment(plan.Step("again", "tcp", 2, 9), base={"CUDA_VISIBLE_DEVICES": "2"}, extra={"NCCL_DEBUG": "TRACE"})
        self.assertEqual(("2", "TRACE"), (env["CUDA_VISIBLE_DEVICES"], env["NCCL_DEBUG"]))

    def test_unknown_lanes(self):
        with self.assertRaisesRegex(ValueError, "'ib': want fake, tcp, gdr or socket"):
            self.environment(plan.Step("again", "ib", 2, 9))

    def test_command(self):
        self.assertEqual(["true"], Place(False).command("a", ["true"]))
        self.assertEqual(["/dist/build/fakeverbs/fakenet", "exec", "-d", "/fabric", "a", "env", "-u", "LD_LIBRARY_PATH", "true"],
                         Place(True).command("a", ["true"]))
        self.assertEqual(["env", "LD_LIBRARY_PATH=/x", "true"], Place(True).command("a", ["true"], "/x")[5:])

    def test_size(self):
        for text, want in (("1", 1), ("64K", 65536), ("256M", 256 << 20), ("1g", 1 << 30)):
            self.assertEqual(want, plan.size(text))
        for text in ("", "K", "0", "-1M", "1.5M", "1T"):
            with self.assertRaises(argparse.ArgumentTypeError):
                plan.size(text)


if __name__ == "__main__":
    unittest.main()
