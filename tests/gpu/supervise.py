"""Runs the ranks of a step: each in a process group of its own, with its output in a file and a limit on its time."""

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional

GRACE = 3.0  # seconds between asking a group to end and ending it


@dataclass
class Rank:
    argv: List[str]
    env: Dict[str, str]
    log: Path


@dataclass
class Outcome:
    codes: List[Optional[int]]  # as subprocess has them; None: had to be ended
    ended: List[float]  # seconds after the start; of a rank that had to be ended, when that was
    why: str = ""  # ranks had to be ended because of this
    seconds: float = 0.0
    stopped: List[int] = field(default_factory=list)

    @property
    def ok(self):
        return not self.why and all(code == 0 for code in self.codes)

    def describe(self):
        """What went wrong, in a line; empty when nothing did."""
        bad = ["rank %d %s" % (r, describe_code(c)) for r, c in enumerate(self.codes) if c not in (0, None)]
        return "; ".join(([self.why] if self.why else []) + bad)


def describe_code(code):
    if code is not None and code < 0:
        try:
            return "ended by " + signal.Signals(-code).name
        except ValueError:
            return "ended by signal %d" % -code
    return "exited with %s" % code


def run(ranks, timeout, linger=15.0, poll=0.05):
    """Runs all ranks until they end.

    After timeout seconds, or linger seconds after one of them ended badly, those left are ended with their children.
    """
    start = time.monotonic()
    procs, codes, ended = [], [None] * len(ranks), [0.0] * len(ranks)
    out = Outcome(codes, ended)
    try:
        for rank in ranks:
            with open(rank.log, "ab") as log, uninterrupted():
                procs.append(subprocess.Popen(rank.argv, env=rank.env, stdin=subprocess.DEVNULL, stdout=log,
                                              stderr=subprocess.STDOUT, start_new_session=True))
        broken = None
        while True:
            now = time.monotonic() - start
            for i, p in enumerate(procs):
                if codes[i] is None and p.poll() is not None:
                    codes[i], ended[i] = p.returncode, now
                    if p.returncode != 0 and broken is None:
                        broken = now
            left = [i for i, c in enumerate(codes) if c is None]
            if not left:
                break
            if now > timeout:
                out.why = "%s still running after the limit of %.0f s" % (names(left), timeout)
            elif broken is not None and now > broken + linger:
                out.why = "%s still running %.0f s after another rank ended badly" % (names(left), linger)
            if out.why:
                out.stopped = left
                for i in left:
                    ended[i] = now
                break
            time.sleep(poll)
    finally:
        stop(procs)
        out.seconds = time.monotonic() - start
    return out


@contextmanager
def uninterrupted():
    """Puts signals off that end us: who is interrupted while a process starts does not know that it is there."""
    late = []
    before = {s: signal.signal(s, lambda s, _: late.append(s)) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
        for s in late:
            os.kill(os.getpid(), s)


def names(ranks):
    return "rank%s %s" % ("s" if len(ranks) > 1 else "", ", ".join(map(str, ranks)))


def stop(procs):
    """Ends the groups of the processes, children that outlived their parent included."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        alive = [p for p in procs if kill_group(p, sig)]
        deadline = time.monotonic() + GRACE
        while alive and time.monotonic() < deadline:
            for p in alive:
                p.poll()
            alive = [p for p in alive if kill_group(p, 0)]
            if alive:
                time.sleep(0.02)
        if not alive:
            break
    for p in procs:
        p.wait()


def kill_group(p, sig):
    """Whether there still was such a group."""
    try:
        os.killpg(p.pid, sig)
        return True
    except (ProcessLookupError, PermissionError):
        return False
