"""The whole of run, with a stand-in for PyTorch. Needs what `make gpu-pack` packs; MESH_GPU_BUILD names its build directory."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE = 3600  # a hang guard


class TestRun(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = self.dir / "out"

    def command(self, *arguments):
        return [sys.executable, str(HERE.parent / "run"), "--out", str(self.out), "--max-bytes", "600", "--timed", "0.01"] + list(arguments)

    def environment(self, torch=HERE / "standin", **env):
        clean = {k: v for k, v in os.environ.items() if k != "MESH_TEST_REQUIRE"}
        return dict(clean, PYTHONPATH=str(torch), PYTHONDONTWRITEBYTECODE="1", MESH_GPU_SYSFS=str(self.dir), **env)

    def run_it(self, *arguments, **env):
        p = subprocess.run(self.command(*arguments), env=self.environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=PATIENCE, universal_newlines=True)
        results = self.out / "results.json"
        return p.returncode, p.stdout, json.loads(results.read_text())["steps"] if results.exists() else None

    def test_skips(self):
        broken = self.dir / "broken"
        (broken / "torch").mkdir(parents=True)
        (broken / "torch/__init__.py").write_text("import os\nos._exit(7)\n")
        absent = self.dir / "absent"
        (absent / "torch").mkdir(parents=True)
        (absent / "torch/__init__.py").write_text("raise OSError('libcuda.so.1 is missing')\n")
        for why, env in ((r"no GPU that PyTorch 0\.0\+standin can use", dict(STANDIN_FAULT="no-gpu")),
                         ("PyTorch failed: status 7", dict(torch=broken)),
                         ("no PyTorch for .*: libcuda.so.1 is missing", dict(torch=absent))):
            with self.subTest(why):
                code, text, steps = self.run_it(**env)
                self.assertEqual((0, None), (code, steps), text)
                self.assertRegex(text, "^skipped: no GPU: %s\n$" % why)
                code, text, _ = self.run_it(MESH_TEST_REQUIRE="lab,gpu", **env)
                self.assertEqual(1, code)
                self.assertRegex(text, "^required by MESH_TEST_REQUIRE: no GPU: %s\n$" % why)

    def test_everything(self):
        code, text, steps = self.run_it()
        self.assertEqual(0, code, text)
        self.assertEqual(2, text.count("3 ranks: ok ("), text)
        self.assertEqual({"ok"}, {s["result"] for s in steps}, text)
        self.assertIn("%d of %d steps went well" % (len(steps), len(steps)), text)
        got = {s["name"]: s for s in steps}
        self.assertEqual(18, len(got))
        self.assertIn("no steps with lanes gdr: no RDMA port is active\n", text)
        self.assertEqual((None, 11), tuple(got["busbw-%s-3" % l]["facts"]["vtable"] for l in ("socket", "tcp")))
        self.assertEqual([600], [c["bytes"] for c in got["busbw-fake-2"]["busbw"]])
        chosen = set(got["collectives-tcp-2"]["facts"]["chosen"])
        for algorithm in ("RING", "TREE"):
            for protocol in ("LL", "LL128", "SIMPLE"):
                self.assertIn("AllReduce %s %s" % (algorithm, protocol), chosen)
        self.assertGreater(len(got["abort-fake-3"]["timing"]), 0)
        self.assertIn("| collectives | fake | 3 | ok |", (self.out / "results.md").read_text())

    def test_notices(self):
        """What goes wrong below is seen, and the rest still runs."""
        for fault, only, reason in (
            [("corrupt=" + op, "collectives", "%s .*: 1 of .* elements are wrong, the first at 3: " % op)
             for op in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "sendrecv")] +
            [("protocol=LL128", "collectives", "choice Ring LL128: NCCL chose .*AllReduce: RING SIMPLE"),
             ("channels", "again", "NCCL opened 64 channels, more than 32"),
             ("network", "busbw-tcp", "NCCL uses network Socket, not mesh")]):
            with self.subTest(fault):
                code, text, steps = self.run_it("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--ranks", "2", "--only", only,
                                                STANDIN_FAULT=fault, STANDIN_FAULT_NET="mesh")
                self.assertEqual(1, code, text)
                self.assertRegex(steps[0]["reason"], reason)

    def test_no_adapter(self):
        """Where nothing but GPU memory is asked for, and there is none, nothing is tested: no success."""
        code, text, steps = self.run_it("--lanes", "gdr")
        self.assertEqual((1, None), (code, steps), text)
        self.assertRegex(text, "^no steps with lanes gdr: no RDMA port is active\n$")

    def test_no_budget(self):
        code, text, steps = self.run_it("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--budget", "30", "--only", "again|communicators")
        self.assertEqual((1, {"left out"}), (code, {s["result"] for s in steps}), text)
        self.assertIn("0 of 2 steps went well", text)

    def test_sockets_do_not_work_either(self):
        code, text, steps = self.run_it("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--mps", "no", STANDIN_FAULT="corrupt=all_reduce")
        self.assertEqual((1, None), (code, steps))
        self.assertRegex(text, "not loopback, no MPS, NCCL_CUMEM_ENABLE=0: rank 1: init, use, destroy 0: .* are wrong")
        self.assertIn("not even with NCCL's own sockets", text)

    def test_mps(self):
        """The daemon is started for us alone, and told to end."""
        log, control = self.dir / "mps.log", self.dir / "bin/nvidia-cuda-mps-control"
        control.parent.mkdir()
        control.write_text("#!/bin/sh\n{ echo \"args $*\"; test -d \"$CUDA_MPS_PIPE_DIRECTORY\" && echo private\n"
                           "test \"$1\" = -d || cat; } >>%s\n" % log)
        control.chmod(0o755)
        path = "%s:%s" % (control.parent, os.environ["PATH"])
        code, text, steps = self.run_it("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--only", "again|abort", PATH=path)
        self.assertEqual(0, code, text)
        self.assertIn("ranks: loopback, MPS\n", text)
        self.assertEqual("args -d\nprivate\nargs \nprivate\nquit -t 5\n", log.read_text())
        control.write_text("#!/bin/sh\necho cannot; exit 1\n")
        code, text, _ = self.run_it("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--only", "again", PATH=path)
        self.assertEqual(0, code, text)
        self.assertIn("not loopback, MPS: cannot\nranks: loopback, no MPS\n", text)
        code, text, _ = self.run_it("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--mps", "yes", PATH=path)
        self.assertEqual(1, code, text)

    def test_ended_from_outside(self):
        """Nothing stays behind."""
        p = subprocess.Popen(self.command("--no-preflight", "--namespaces", "no", "--lanes", "tcp", "--only", "again"), start_new_session=True,
                             env=self.environment(STANDIN_FAULT="hang=1", TMPDIR=str(self.dir)), stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, universal_newlines=True)
        self.addCleanup(p.stdout.close)
        deadline = time.monotonic() + PATIENCE
        pids = []
        while len(pids) < 2 and p.poll() is None and time.monotonic() < deadline:
            pids = workers(str(self.out))
            time.sleep(0.02)
        self.assertEqual(2, len(pids), p.stdout.read() if p.poll() is not None else "still running")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(143, p.wait(PATIENCE))
        self.assertEqual([], workers(str(self.out)))
        self.assertEqual([], list(self.dir.glob("mesh-gpu-*")))

    def test_usage(self):
        for arguments, want in ((["--lanes", "ib"], "--lanes ib: want some of fake,tcp,gdr"), (["--ranks", "4"], "--ranks 4: want some of 2,3"),
                                (["--max-bytes", "0"], "'0': want a positive number"), (["--env", "X"], "--env X: want NAME=VALUE"),
                                (["--only", "("], "unterminated")):
            code, text, _ = self.run_it(*arguments)
            self.assertEqual(2, code, text)
            self.assertIn(want, text)
        code, text, _ = self.run_it("--list", "--only", "death")
        self.assertEqual((0, 2), (code, len(text.splitlines())), text)
        code, text, _ = self.run_it(MESH_GPU_BUILD=str(self.dir))
        self.assertEqual(1, code)
        self.assertIn("missing: %s/libnccl-net-mesh.so, " % self.dir, text)


def workers(mark):
    """The processes of workers whose arguments contain the mark."""
    out = []
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = p.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if mark in line and "worker.py" in line:
            out.append(int(p.parent.name))
    return out


if __name__ == "__main__":
    unittest.main()
