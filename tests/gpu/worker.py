"""One rank of a step. Everything that touches PyTorch is here.

Results go to a file, a line of JSON for each case, as they come: a rank that hangs has said how far it got.
"""

import argparse
import faulthandler
import functools
import inspect
import json
import os
import signal
import sys
import time
from datetime import timedelta

import gpudirect
import nccllog

MIB = 1 << 20
DTYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "sendrecv")
SETTINGS = [(a, p) for a in ("Ring", "Tree") for p in ("LL", "LL128", "Simple")]
PERIOD = 65521  # prime: no chunk of a power of two, put in the wrong place, looks right
UNTOUCHED = 99  # what outputs hold before; no sum of patterns of three ranks is as large
DEATH_AFTER = 5  # collectives


def describe():
    """What there is to run on, or the reason why it is nothing."""
    try:
        import torch
        import torch.distributed as dist
    except Exception as e:  # also a broken installation, which fails as it likes
        return {"skip": "no PyTorch for %s: %s" % (sys.executable, e)}
    if not torch.cuda.is_available():
        return {"skip": "no GPU that PyTorch %s can use" % torch.__version__}
    if not dist.is_available() or not dist.is_nccl_available():
        return {"skip": "PyTorch %s is built without NCCL" % torch.__version__}
    return {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "memory": torch.cuda.get_device_properties(0).total_memory, "attributes": gpudirect.attributes()}


class OutOfTime(Exception):
    pass


class Unsupported(Exception):
    """This PyTorch cannot do it; the text says what is missing."""


class Worker:
    def __init__(self, options):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.options = torch, dist, options
        self.rank, self.world = options.rank, options.ranks
        self.device = torch.device(options.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.store = dist.TCPStore(options.master, options.port, self.world, self.rank == 0, timeout=timedelta(seconds=120))
        self.deadline = time.monotonic() + options.seconds
        self.inits = self.questions = self.failures = 0
        self.results = open(options.results, "a")
        self.log_read = 0

    # Between the ranks

    def ask(self, question):
        """Rank 0's answer, the same on all ranks."""
        self.questions += 1
        key = "question%d" % self.questions
        if self.rank == 0:
            self.store.set(key, json.dumps(question()))
        return json.loads(self.store.get(key))

    def meet(self, name):
        """Waits until all ranks are here, without NCCL."""
        self.questions += 1
        key = "meet%d%s" % (self.questions, name)
        self.store.set("%s-%d" % (key, self.rank), "here")
        self.store.wait(["%s-%d" % (key, r) for r in range(self.world)], timedelta(seconds=60))

    def leave(self, world, patience=60):
        """Of the first world ranks, rank 0 goes last, whose store everybody uses; it does not wait for ever."""
        try:
            if self.rank == 0:
                self.store.wait(["left-%d" % r for r in range(1, world)], timedelta(seconds=patience))
            else:
                self.store.set("left-%d" % self.rank, "left")
        except Exception as e:  # PyTorch has had several types for that
            print("leaving without the others: %s" % e, file=sys.stderr)

    def report(self, case, ok, **more):
        self.failures += not ok
        self.results.write(json.dumps(dict(case=case, ok=bool(ok), **more)) + "\n")
        self.results.flush()

    def attempt(self, case, work):
        """Runs a case: work returns what is wrong, or nothing. All ranks run the same ones."""
        if not self.ask(lambda: time.monotonic() < self.deadline):
            raise OutOfTime(case)
        start = time.monotonic()
        wrong = work()
        self.report(case, not wrong, ms=round((time.monotonic() - start) * 1e3, 1), **({"error": wrong} if wrong else {}))

    # Process groups

    def init(self):
        self.inits += 1
        more = {}
        if self.device.type == "cuda" and "device_id" in inspect.signature(self.dist.init_process_group).parameters:
            more["device_id"] = self.device  # the communicator is made here and now, and can be split
        self.dist.init_process_group(self.options.backend, store=self.dist.PrefixStore("init%d" % self.inits, self.store),
                                     rank=self.rank, world_size=self.world, timeout=timedelta(seconds=120), **more)

    def destroy(self):
        self.sync()
        self.dist.destroy_process_group()

    def abort(self):
        """Aborts all communicators of the process, and says how."""
        from torch.distributed import distributed_c10d as c10d

        if hasattr(c10d, "_abort_process_group"):  # PyTorch 2.6 and later
            c10d._abort_process_group()
            return "_abort_process_group"
        group = c10d._get_default_group()
        backend = group._get_backend(self.device) if hasattr(group, "_get_backend") else None
        for name in ("abort", "_abort"):
            if hasattr(backend, name):
                getattr(backend, name)()
                self.dist.destroy_process_group()
                return name
        raise Unsupported("PyTorch %s offers no way to abort a communicator" % self.torch.__version__)

    def sync(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    # Contents: small integers, which every type holds and adds exactly

    @functools.lru_cache(maxsize=64)
    def base(self, seed):
        i = self.torch.arange(PERIOD, dtype=self.torch.int64, device=self.device)
        return (i * i + i * (7919 * seed + 1)) % PERIOD % 32

    def spread(self, base, count, dtype, start=0):
        """count elements of the endless repetition of base, from start on."""
        start %= PERIOD
        return base.to(dtype).repeat((start + count + PERIOD - 1) // PERIOD)[start:start + count]

    def pattern(self, seed, count, dtype):
        return self.spread(self.base(seed), count, dtype)

    def empty(self, count, dtype):
        return self.torch.full((count,), UNTOUCHED, dtype=dtype, device=self.device)

    def differs(self, got, want):
        """Where two tensors differ, or nothing."""
        if self.torch.equal(got, want):
            return ""
        bad = (got != want).nonzero()
        at = int(bad[0])
        return "%d of %d elements are wrong, the first at %d: %s in place of %s" % (
            len(bad), got.numel(), at, got[at].item(), want[at].item())

    # Operations. size is that of the largest buffer of a rank, in bytes. They return what is wrong.

    def elements(self, size, dtype, parts=1):
        return max(1, size // (self.torch.empty(0, dtype=dtype).element_size() * parts))

    def all_reduce(self, size, dtype, op="SUM", group=None, members=None):
        n, ranks = self.elements(size, dtype), members or range(self.world)
        x = self.pattern(self.rank, n, dtype)
        self.dist.all_reduce(x, op=getattr(self.dist.ReduceOp, op), group=group)
        total = self.base(ranks[0])
        for r in ranks[1:]:
            total = total + self.base(r) if op == "SUM" else self.torch.maximum(total, self.base(r))
        return self.differs(x, self.spread(total, n, dtype))

    def all_reduce_max(self, size, dtype):
        return self.all_reduce(size, dtype, op="MAX")

    def broadcast(self, size, dtype):
        wrong = []
        for root in range(self.world):
            want = self.pattern(100 + root, self.elements(size, dtype), dtype)
            x = want.clone() if self.rank == root else self.empty(want.numel(), dtype)
            self.dist.broadcast(x, root)
            wrong.append(self.differs(x, want))
        return "; ".join(filter(None, wrong))

    def all_gather(self, size, dtype):
        n = self.elements(size, dtype, self.world)
        out = self.empty(n * self.world, dtype)
        self.dist.all_gather_into_tensor(out, self.pattern(self.rank, n, dtype))
        return self.differs(out, self.torch.cat([self.pattern(r, n, dtype) for r in range(self.world)]))

    def reduce_scatter(self, size, dtype):
        n = self.elements(size, dtype, self.world)
        out = self.empty(n, dtype)
        self.dist.reduce_scatter_tensor(out, self.pattern(self.rank, n * self.world, dtype))
        total = self.base(0)
        for r in range(1, self.world):
            total = total + self.base(r)
        return self.differs(out, self.spread(total, n, dtype, start=self.rank * n))

    def all_to_all(self, size, dtype):
        n = self.elements(size, dtype, self.world)
        seed = lambda sender, receiver: sender * self.world + receiver
        out = self.empty(n * self.world, dtype)
        send = self.torch.cat([self.pattern(seed(self.rank, r), n, dtype) for r in range(self.world)])
        self.dist.all_to_all_single(out, send)
        return self.differs(out, self.torch.cat([self.pattern(seed(r, self.rank), n, dtype) for r in range(self.world)]))

    def sendrecv(self, size, dtype):
        """To and from both neighbours of a ring at once, which two ranks are twice."""
        n, P2POp = self.elements(size, dtype), self.dist.P2POp
        ops, outs = [], []
        for shift in (1, self.world - 1):
            to, source = (self.rank + shift) % self.world, (self.rank - shift) % self.world
            outs.append((self.empty(n, dtype), self.pattern(10 * shift + source, n, dtype)))
            ops.append(P2POp(self.dist.isend, self.pattern(10 * shift + self.rank, n, dtype), to))
            ops.append(P2POp(self.dist.irecv, outs[-1][0], source))
            if self.world == 2:
                break
        for work in self.dist.batch_isend_irecv(ops):
            work.wait()
        return "; ".join(filter(None, (self.differs(got, want) for got, want in outs)))

    # Steps

    def collectives(self):
        """Everything once as NCCL chooses, then every algorithm with every protocol."""
        limit = self.options.max_bytes
        sizes = [s for s in (1, 1000, 65536 + 24, MIB, 4 * MIB + 8) if s <= limit]
        self.init()
        for op in OPERATIONS:
            for dtype in DTYPES:
                for size in sizes:
                    self.operation(op, size, dtype)
        for op in OPERATIONS:
            for dtype in ("float32", "bfloat16") if op == "all_reduce" else ("float32",):
                self.operation(op, limit, dtype)
        for dtype in DTYPES:
            self.operation("all_reduce_max", min(MIB, limit), dtype)
        self.destroy()
        for algorithm, protocol in SETTINGS:
            os.environ.update(NCCL_ALGO=algorithm, NCCL_PROTO=protocol)
            self.new_log()
            self.init()
            # A tree is for all_reduce only; others have none to choose from.
            for op in OPERATIONS[:4] if algorithm == "Ring" else ("all_reduce",):
                for dtype in ("float32", "int8"):
                    for size in [s for s in (8, 65536 + 24, 4 * MIB + 8, 32 * MIB) if s <= limit]:
                        if protocol == "Simple" or size < 32 * MIB:
                            self.operation(op, size, dtype, " %s %s" % (algorithm, protocol))
            self.destroy()
            self.check_choice(algorithm, protocol)
        for name in ("NCCL_ALGO", "NCCL_PROTO"):
            del os.environ[name]

    def operation(self, op, size, dtype, setting=""):
        if self.options.backend == "gloo" and (op in ("all_gather", "reduce_scatter") or dtype == "bfloat16"):
            return  # Gloo has no such thing
        self.attempt("%s %s %d%s" % (op, dtype, size, setting), lambda: getattr(self, op)(size, getattr(self.torch, dtype)))

    def new_log(self):
        """What NCCL has logged since the last call. Only rank 0's has its choices."""
        try:
            with open(os.environ.get("NCCL_DEBUG_FILE", "")) as f:
                f.seek(self.log_read)
                text = f.read()
                self.log_read = f.tell()
        except OSError:
            text = ""
        return text

    def check_choice(self, algorithm, protocol):
        if self.rank != 0:
            return
        chosen = nccllog.parse(self.new_log()).chosen
        wrong = nccllog.contradictions(chosen, algorithm, protocol)
        self.report("choice %s %s" % (algorithm, protocol), not wrong, calls=sum(chosen.values()), **(
            {"error": "NCCL chose " + ", ".join(wrong)} if wrong else {} if chosen else {"note": "this NCCL does not log its choice"}))

    def busbw(self):
        """Bus bandwidth of all_reduce, in GB/s."""
        torch, dist = self.torch, self.dist
        self.init()
        for size in sorted({min(s, self.options.max_bytes) for s in (65536, MIB, 16 * MIB, 256 * MIB)}):
            n = self.elements(size, torch.float32)
            x, want = self.pattern(self.rank, n, torch.float32), self.base(0)
            for r in range(1, self.world):
                want = torch.maximum(want, self.base(r))

            def repeat(times):
                self.meet("timed")
                self.sync()
                start = time.monotonic()
                for _ in range(times):
                    dist.all_reduce(x, op=dist.ReduceOp.MAX)  # the same however often
                self.sync()
                return (time.monotonic() - start) / times

            def measure():
                repeat(2)
                once = repeat(2)
                times = self.ask(lambda: max(2, min(200, int(self.options.timed / once))))
                rounds = sorted(repeat(times) for _ in range(3))
                seconds = rounds[1]
                wrong = self.differs(x, self.spread(want, n, torch.float32))
                if not wrong:
                    self.report("busbw", True, bytes=size, us=round(seconds * 1e6, 1), rounds=times,
                                busbw=size / seconds * 2 * (self.world - 1) / self.world / 1e9)
                return wrong

            self.attempt("all_reduce %d" % size, measure)
        self.destroy()

    def communicators(self):
        """Several at once, of different ranks, and split ones."""
        dist, everyone = self.dist, list(range(self.world))
        self.init()
        first = self.torch.float32
        groups = [dist.new_group(everyone) for _ in range(4)]

        def together():
            works, xs = [], []
            for k, g in enumerate(groups):
                xs.append(self.pattern(self.rank + k, self.elements(min(16 * MIB, self.options.max_bytes), first), first))
                works.append(dist.all_reduce(xs[-1], group=g, async_op=True))
            for w in works:
                w.wait()
            wrong = []
            for k, x in enumerate(xs):
                total = self.base(k)
                for r in everyone[1:]:
                    total = total + self.base(r + k)
                wrong.append(self.differs(x, self.spread(total, x.numel(), first)))
            return "; ".join(filter(None, wrong))

        for i in range(3):
            self.attempt("four at once, %d" % i, together)
        pairs = [[i, (i + 1) % self.world] for i in range(self.world if self.world > 2 else 1)]
        for members, g in [(sorted(p), dist.new_group(sorted(p))) for p in pairs]:
            self.attempt("all_reduce of %s" % members, lambda: "" if self.rank not in members else self.all_reduce(
                min(MIB, self.options.max_bytes), first, group=g, members=members))
        self.split([[0, 1], everyone[2:]] if self.world > 2 else [everyone])
        self.destroy()

    def split(self, parts):
        parts = [p for p in parts if p]
        if not hasattr(self.dist, "split_group") or self.options.backend != "nccl":
            self.report("split", True, note="PyTorch %s has no split_group" % self.torch.__version__)
            return
        mine = next(p for p in parts if self.rank in p)

        def work():
            group = self.dist.split_group(split_ranks=parts)
            wrong = [self.all_reduce(min(s, self.options.max_bytes), self.torch.int32, group=group, members=mine)
                     for s in (8, MIB, 4 * MIB)]
            return "; ".join(filter(None, wrong))

        self.attempt("split into %s, mine is %s" % (parts, mine), work)
        self.attempt("all_reduce of the parent", lambda: self.all_reduce(min(MIB, self.options.max_bytes), self.torch.int32))

    def again(self):
        """Communicators come and go in one process; with the last one NCCL may unload the plugin."""
        for i in range(4):
            def work():
                self.init()
                wrong = [self.all_reduce(min(s, self.options.max_bytes), self.torch.float32) for s in (8, MIB, 16 * MIB)]
                self.destroy()
                return "; ".join(filter(None, wrong))

            self.attempt("init, use, destroy %d" % i, work)

    def abort_step(self):
        """Aborts with requests in flight, then with a rank that never came; each time a new start must work."""
        n = self.elements(min(64 * MIB, self.options.max_bytes), self.torch.float32)
        for case, absent in (("in flight", None), ("rank 0 absent", 0)):
            self.init()
            self.attempt("before the abort, " + case, lambda: self.all_reduce(min(MIB, self.options.max_bytes), self.torch.float32))
            self.sync()

            def work():
                xs = [self.pattern(self.rank, n, self.torch.float32) for _ in range(4)]
                self.sync()
                self.meet("abort")
                if self.rank != absent:
                    for x in xs:
                        self.dist.all_reduce(x, async_op=True)
                time.sleep(0.1)
                start = time.monotonic()
                how = self.abort()
                self.sync()
                seconds = time.monotonic() - start
                self.report("abort took", True, ms=round(seconds * 1e3, 1), how=how, absent=absent)
                return "" if seconds < 20 else "aborting took %.1f s" % seconds

            try:
                self.attempt("abort, " + case, work)
            except Unsupported as e:
                self.report("abort, " + case, True, note="not done: %s" % e)
                self.destroy()
                return
            self.meet("after abort")
        self.init()
        self.attempt("after the aborts", lambda: self.all_reduce(min(16 * MIB, self.options.max_bytes), self.torch.float32))
        self.destroy()

    def death(self):
        """The last rank dies in the middle of a transfer. The others must not wait for ever: an error, or the end by PyTorch's watchdog."""
        self.init()
        self.attempt("before", lambda: self.all_reduce(min(MIB, self.options.max_bytes), self.torch.float32))
        x = self.pattern(self.rank, self.elements(min(64 * MIB, self.options.max_bytes), self.torch.float32), self.torch.float32)
        try:
            for i in range(1000):
                work = self.dist.all_reduce(x, async_op=True)
                if i >= DEATH_AFTER and self.rank == self.world - 1:
                    self.report("dies", True, at=time.time())
                    os.kill(os.getpid(), signal.SIGKILL)
                work.wait()
                self.sync()
        except Exception as e:
            said = "%s: %s" % (type(e).__name__, e)
            self.report("told", True, at=time.time(), said=said[:300])
            print(said, file=sys.stderr, flush=True)
            self.leave(self.world - 1, 5)  # the others may have been ended
            # Communicators are broken: no orderly end can be expected of the interpreter.
            os._exit(0)
        self.report("told", False, error="1000 all_reduces went well without a rank")

    def run(self):
        work = {"abort": self.abort_step}.get(self.options.work) or getattr(self, self.options.work)
        try:
            work()
        except OutOfTime as e:
            self.report("out of time", False, error="stopped before: %s" % e)
            self.sync()
        if self.options.work != "death":
            self.leave(self.world)
        if self.failures:
            print("rank %d: %d cases failed" % (self.rank, self.failures), file=sys.stderr, flush=True)
        return 1 if self.failures else 0


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--describe", action="store_true", help="say what there is to run on, as JSON")
    parser.add_argument("--work", choices=["collectives", "busbw", "communicators", "again", "abort", "death"])
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--master", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--results", default=os.devnull)
    parser.add_argument("--max-bytes", type=int, default=256 * MIB)
    parser.add_argument("--seconds", type=float, default=60, help="no case begins after that")
    parser.add_argument("--timed", type=float, default=0.5, help="how long a round of a measurement takes")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", default="nccl")
    options = parser.parse_args(argv)
    if options.describe:
        print(json.dumps(describe()))
        return 0
    if not options.work:
        parser.error("--work is missing")
    faulthandler.enable()
    faulthandler.dump_traceback_later(options.seconds + 10, exit=False)
    return Worker(options).run()


if __name__ == "__main__":
    sys.exit(main())
