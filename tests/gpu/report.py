"""What a run found: a table for people, Markdown for the README, JSON for programs."""

import json
from collections import OrderedDict

# More channels than this for a few hundred Gb/s: NCCL was told something wrong about the network.
MOST_CHANNELS = 32
TARGET = 1.0  # bus bandwidth over that of NCCL's own sockets


def table(rows):
    """Columns of equal width; the first row is the head."""
    rows = [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows)


def markdown(rows):
    rows = [[str(c).replace("|", "\\|") for c in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0])] + rows[1:])


def size(n):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit and n % unit == 0:
            return "%d %s" % (n // unit, name)
    return "%d B" % n


def shown(value, form="%s"):
    return "-" if value is None else form % value


def step_rows(results):
    """Steps with their outcome."""
    rows = [["step", "lanes", "ranks", "result", "cases", "s", "vtable", "channels", "speed GB/s", "remarks"]]
    for r in results:
        facts = r.get("facts") or {}
        rows.append([r["work"], r["lanes"], r["ranks"], r["result"], r.get("cases", "-"), shown(r.get("seconds"), "%.1f"),
                     shown(facts.get("vtable"), "v%d"), shown(facts.get("channels")), shown(facts.get("speed"), "%.1f"),
                     r.get("reason") or "; ".join(r.get("notes", []))])
    return rows


def busbw_rows(results):
    """Bus bandwidth of the lanes beside NCCL's own sockets, for each number of ranks and size."""
    found = OrderedDict()
    for r in results:
        for case in r.get("busbw", []):
            found.setdefault((r["ranks"], case["bytes"]), {})[r["lanes"]] = case["busbw"]
    lanes = [l for l in ("tcp", "fake", "gdr") if any(l in f for f in found.values())]
    rows = [["ranks", "size", "NCCL socket GB/s"] + [h for l in lanes for h in (l + " GB/s", l + " / socket")]]
    for (ranks, n), speeds in found.items():
        base = speeds.get("socket")
        row = [ranks, size(n), shown(base, "%.3f")]
        for l in lanes:
            mine = speeds.get(l)
            row += [shown(mine, "%.3f"), "%.2f" % (mine / base) if mine and base else "-"]
        rows.append(row)
    return rows


def missed(results):
    """Measurements below the target, as text."""
    rows = busbw_rows(results)
    out = []
    for row in rows[1:]:
        for head, value in zip(rows[0], row):
            if head.endswith("/ socket") and value != "-" and float(value) < TARGET:
                out.append("%s ranks, %s, %s: %s" % (row[0], row[1], head.split()[0], value))
    return out


def machine_line(run):
    m = run["machine"]
    return "%s; GPU %s, driver %s; PyTorch %s, NCCL %s; nodes: %s; MPS: %s" % (
        run["date"], m.get("gpu"), m.get("driver"), m.get("torch"), m.get("nccl"), run["nodes"], run["mps"])


def text(run, form=table):
    parts = [machine_line(run), form(step_rows(run["steps"]))]
    if any(r.get("busbw") for r in run["steps"]):
        parts.append("Bus bandwidth of all-reduce:" if form is table else "Bus bandwidth of all-reduce, float32:")
        parts.append(form(busbw_rows(run["steps"])))
    below = missed(run["steps"])
    if below:
        parts.append("Below the target of %.1f x NCCL's sockets: %s" % (TARGET, "; ".join(below)))
    return "\n\n".join(parts) + "\n"


def write(run, directory):
    (directory / "results.json").write_text(json.dumps(run, indent=1) + "\n")
    (directory / "results.md").write_text(text(run, markdown))
