import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import supervise

PATIENCE = 3600  # a hang guard


class TestSupervise(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def run_shell(self, *scripts, timeout=PATIENCE, linger=PATIENCE):
        ranks = [supervise.Rank(["sh", "-c", s], dict(os.environ, WHO="rank%d" % i), self.dir / ("%d.log" % i))
                 for i, s in enumerate(scripts)]
        return supervise.run(ranks, timeout, linger)

    def test_good(self):
        out = self.run_shell("echo $WHO", "echo $WHO >&2")
        self.assertEqual((True, [0, 0], ""), (out.ok, out.codes, out.describe()))
        self.assertEqual(["rank0\n", "rank1\n"], [(self.dir / ("%d.log" % i)).read_text() for i in range(2)])

    def test_bad(self):
        out = self.run_shell("exit 3", "kill -9 $$", "true")
        self.assertEqual((False, [3, -9, 0]), (out.ok, out.codes))
        self.assertEqual("rank 0 exited with 3; rank 1 ended by SIGKILL", out.describe())

    def test_time_out_ends_children_too(self):
        out = self.run_shell("trap '' TERM; sleep 600 & echo $! >%s/child; wait; sleep 600" % self.dir, "true", timeout=1)
        self.assertEqual(([None, 0], [0]), (out.codes, out.stopped))
        self.assertRegex(out.describe(), "rank 0 still running after the limit of 1 s")
        self.assertGone(int((self.dir / "child").read_text()))

    def test_a_rank_left_alone(self):
        out = self.run_shell("exit 1", "sleep 600", "sleep 600", linger=0.3)
        self.assertEqual([1, None, None], out.codes)
        self.assertRegex(out.describe(), "^ranks 1, 2 still running 0 s after another rank ended badly; rank 0 exited with 1$")

    def test_orphans(self):
        """Children that outlive their rank are ended with it."""
        self.run_shell("sleep 600 & echo $! >%s/child" % self.dir)
        self.assertGone(int((self.dir / "child").read_text()))

    def test_ended_while_a_rank_starts(self):
        """Who is told to end before it knows of the rank ends that too."""
        def start(*args, **kw):
            p = popen(*args, **kw)
            started.append(p.pid)
            os.kill(os.getpid(), signal.SIGTERM)
            return p
        popen, started = subprocess.Popen, []
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        with mock.patch("subprocess.Popen", start), self.assertRaises(SystemExit):
            self.run_shell("sleep 600")
        self.assertGone(*started)

    def test_no_such_program(self):
        with self.assertRaises(FileNotFoundError):
            supervise.run([supervise.Rank(["/nonexistent"], {}, self.dir / "log")], PATIENCE)

    def assertGone(self, pid):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                state = Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                return
            if state == "Z":
                return
            time.sleep(0.02)
        self.fail("process %d is still there" % pid)


if __name__ == "__main__":
    unittest.main()
