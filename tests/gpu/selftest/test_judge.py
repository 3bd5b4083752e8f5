import json
import shutil
import tempfile
import unittest
from pathlib import Path

import judge
import plan
import report
import supervise
from test_nccllog import LOG


class TestJudge(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def judge(self, step, cases, codes=None, ended=None, why="", stopped=(), log=LOG, words=""):
        for r, found in enumerate(cases):
            (self.dir / ("rank%d.jsonl" % r)).write_text("".join(json.dumps(dict({"ok": True}, **c)) + "\n" for c in found))
            (self.dir / ("nccl%d.log" % r)).write_text(log)
            (self.dir / ("rank%d.log" % r)).write_text(words)
        codes = [0] * step.ranks if codes is None else codes
        return judge.judge(step, supervise.Outcome(codes, ended or [1.0] * step.ranks, why, 1.0, list(stopped)), self.dir)

    def test_steps(self):
        one, step = [{"case": "x"}], plan.Step("collectives", "fake", 2, 60)
        tcp = LOG.replace("rdma0:1 -> rdma1:1 mtu 1024 gid 3", "p0 -> p1 tcp 192.168.1.1 -> 192.168.1.2")
        socket = "NCCL INFO Using network Socket\n"
        gdr, direct = plan.Step("collectives", "gdr", 2, 60), LOG.replace("via NET/Mesh/0", "via NET/Mesh/0/GDRDMA")
        for name, want, arguments in (
            ("good", [], dict(step=step, cases=[one, one])),
            ("good over TCP", [], dict(step=plan.Step("again", "tcp", 2, 60), cases=[one, one], log=tcp)),
            ("good over sockets", [], dict(step=plan.Step("busbw", "socket", 2, 60), cases=[one, one], log=socket)),
            ("good with GPU memory", [], dict(step=gdr, cases=[one, one], log=direct)),
            ("host memory in place of the GPU's", ["NCCL's channels do not use GPU memory: NET/Mesh/0, without /GDRDMA"],
             dict(step=gdr, cases=[one, one])),
            ("host memory for some", ["NCCL's channels do not use GPU memory: NET/Mesh/0, NET/Mesh/0/GDRDMA, without /GDRDMA"],
             dict(step=gdr, cases=[one, one], log=direct.replace("/GDRDMA", "", 1))),
            ("no channels", ["NCCL's channels do not use GPU memory: none in its log, without /GDRDMA"],
             dict(step=gdr, cases=[one, one], log=LOG.replace("via NET", "by NET"))),
            ("rank 0 has choices more", [], dict(step=step, cases=[one + [{"case": "choice Ring LL"}], one])),
            ("wrong data", ["rank 1: x: 3 elements"], dict(step=step, cases=[one, [{"case": "x", "ok": False, "error": "3 elements"}]])),
            ("exit status", ["rank 1 exited with 1 (KeyError: 7)"], dict(step=step, cases=[one, one], codes=[0, 1], words="x\nKeyError: 7\n")),
            ("hang", ["rank 1 still running"], dict(step=step, cases=[one, one], codes=[0, None], why="rank 1 still running")),
            ("no cases", ["no case was run"], dict(step=step, cases=[[], []])),
            ("one rank fell behind", ["the ranks got through 2, 1 cases"], dict(step=step, cases=[one + one, one])),
            ("empty log", ["NCCL's log does not say which network it uses", "NCCL's log does not name the plugin's vtable",
                           "no connection of the plugin in NCCL's log"], dict(step=step, cases=[one, one], log="")),
            ("NCCL's own network", ["NCCL uses network Socket, not mesh"],
             dict(step=step, cases=[one, one], log=LOG.replace("Using network Mesh", "Using network Socket"))),
            ("the plugin in place of sockets", ["NCCL uses network Mesh, not socket"],
             dict(step=plan.Step("busbw", "socket", 2, 60), cases=[one, one])),
            ("one node", ["NCCL sees 1 nodes, not 2: a different NCCL_HOSTID for each rank had no effect"],
             dict(step=step, cases=[one, one], log=LOG.replace("nNodes 2", "nNodes 1"))),
            ("TCP in place of RDMA", ["lanes of another kind than fake: a -> b"], dict(step=step, cases=[one, one], log=tcp)),
            ("RDMA in place of TCP", ["lanes of another kind than tcp: a -> b"],
             dict(step=plan.Step("again", "tcp", 2, 60), cases=[one, one])),
            ("channels", ["NCCL opened 64 channels, more than 32: the plugin's properties mislead it"],
             dict(step=step, cases=[one, one], log=LOG.replace("8 coll channels", "64 coll channels"))),
        ):
            with self.subTest(name):
                got = self.judge(**arguments)
                self.assertEqual(want, got.get("wrong", []))
                self.assertEqual("FAIL" if want else "ok", got["result"])

    def test_a_line_cut_short(self):
        (self.dir / "x").write_text('{"case": "a", "ok": true}\n{"case": "b", "o')
        self.assertEqual([{"case": "a", "ok": True}], judge.cases(self.dir / "x"))
        self.assertEqual([], judge.cases(self.dir / "nothing"))

    def test_death(self):
        step = plan.Step("death", "fake", 3, 60)
        dies, told = [{"case": "dies", "at": 1.0}], [{"case": "told", "at": 2.0}]
        words = "ncclRemoteError: remote process exited"
        silent = LOG.replace("NCCL WARN", "NCCL INFO")
        for name, want, arguments in (
            ("all told", [], dict(cases=[told, told, dies], codes=[0, 0, -9])),
            ("ended by the watchdog", [], dict(cases=[[], [], dies], codes=[-6, -6, -9])),
            ("nobody died", ["rank 2 never came to its death"], dict(cases=[told, told, []], codes=[0, 0, 0])),
            ("died of something else", ["rank 2 never came to its death", "rank 2 exited with 1"], dict(cases=[told, told, []], codes=[0, 0, 1])),
            ("one waits for ever", ["rank 1 was still waiting 49 s after rank 2's death"],
             dict(cases=[told, [], dies], codes=[0, None, -9], ended=[2.0, 50.0, 1.0], why="limit", stopped=[1])),
            ("unaware", ["rank 0 ended as if nothing had happened"], dict(cases=[[], told, dies], codes=[0, 0, -9])),
            ("late", ["rank 0 learnt of the death only after 49 s"],
             dict(cases=[told, told, dies], codes=[0, 0, -9], ended=[50.0, 2.0, 1.0])),
            ("worked without it", ["rank 0: told: 1000 went well"],
             dict(cases=[[{"case": "told", "ok": False, "error": "1000 went well"}], told, dies], codes=[1, 0, -9])),
        ):
            with self.subTest(name):
                got = self.judge(step, words=words, log=LOG.replace("nNodes 2", "nNodes 3"), **arguments)
                self.assertEqual(want, got.get("wrong", []))
        got = self.judge(step, [[], [], dies], [-11, -11, -9], log=silent)
        self.assertIn("rank 0 ended without a word about its peer", got["wrong"])


class TestReport(unittest.TestCase):
    steps = [
        dict(work="busbw", lanes=lane, ranks=2, result="ok", seconds=1.0, cases=1, facts={"vtable": v, "channels": 8, "speed": 24.0},
             busbw=[{"bytes": 65536, "busbw": speed}, {"bytes": 1 << 20, "busbw": 2 * speed}])
        for lane, v, speed in (("socket", None, 1.0), ("fake", 11, 2.5), ("tcp", 11, 0.9))
    ] + [dict(work="abort", lanes="tcp", ranks=3, result="left out", reason="no time | left")]

    def test_rows(self):
        self.assertEqual([
            ["ranks", "size", "NCCL socket GB/s", "tcp GB/s", "tcp / socket", "fake GB/s", "fake / socket"],
            [2, "64 KiB", "1.000", "0.900", "0.90", "2.500", "2.50"],
            [2, "1 MiB", "2.000", "1.800", "0.90", "5.000", "2.50"]], report.busbw_rows(self.steps))
        self.assertEqual([
            ["busbw", "socket", 2, "ok", 1, "1.0", "-", "8", "24.0", ""],
            ["busbw", "fake", 2, "ok", 1, "1.0", "v11", "8", "24.0", ""],
            ["busbw", "tcp", 2, "ok", 1, "1.0", "v11", "8", "24.0", ""],
            ["abort", "tcp", 3, "left out", "-", "-", "-", "-", "-", "no time | left"]], report.step_rows(self.steps)[1:])
        self.assertEqual(["2 ranks, 64 KiB, tcp: 0.90", "2 ranks, 1 MiB, tcp: 0.90"], report.missed(self.steps))

    def test_text(self):
        run = {"date": "2026-01-01", "machine": {"gpu": "G", "driver": "1", "torch": "2", "nccl": "3"}, "nodes": "loopback",
               "mps": "no", "steps": self.steps}
        text = report.text(run)
        self.assertTrue(text.startswith("2026-01-01; GPU G, driver 1; PyTorch 2, NCCL 3; nodes: loopback; MPS: no\n\n"))
        self.assertIn("Below the target of 1.0 x NCCL's sockets: 2 ranks, 64 KiB, tcp: 0.90;", text)
        marked = report.text(run, report.markdown)
        self.assertIn("| 2 | 1 MiB | 2.000 | 1.800 | 0.90 | 5.000 | 2.50 |\n", marked)
        self.assertIn("no time \\| left |", marked)
        run["steps"] = self.steps[-1:]
        self.assertNotIn("bandwidth", report.text(run))

    def test_size(self):
        self.assertEqual(["1 B", "1000 B", "64 KiB", "256 MiB", "1 GiB"], [report.size(n) for n in (1, 1000, 65536, 256 << 20, 1 << 30)])


if __name__ == "__main__":
    unittest.main()
