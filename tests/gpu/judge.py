"""Decides from what the ranks left behind whether a step went well."""

import json

import nccllog
import report

DEATH_LIMIT = 30.0  # seconds between a rank's death and the others' knowing
# What NCCL, PyTorch or the plugin say when a peer is gone.
TOLD = ("NCCL WARN", "ncclRemoteError", "remote process exited", "ncclSystemError")


def cases(path):
    """The cases that a rank has written; a last line cut short by its death is left out."""
    out = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                out.append(json.loads(line))
            except ValueError:
                continue
    return out


def judge(step, outcome, directory):
    """The result of a step, as it goes into the report."""
    ranks = [cases(directory / ("rank%d.jsonl" % r)) for r in range(step.ranks)]
    logs = [read(directory / ("nccl%d.log" % r)) + read(directory / ("rank%d.log" % r)) for r in range(step.ranks)]
    facts = nccllog.parse(logs[0])
    wrong = ["rank %d: %s: %s" % (r, c["case"], c.get("error", "failed"))
             for r, found in enumerate(ranks) for c in found if not c["ok"]]
    if step.work == "death":
        wrong += judge_death(step, outcome, ranks, logs)
    else:
        if not outcome.ok:
            wrong.append(bad_end(outcome, directory))
        counts = [sum(not c["case"].startswith("choice ") for c in found) for found in ranks]
        if len(set(counts)) > 1:
            wrong.append("the ranks got through %s cases" % ", ".join(map(str, counts)))
        if not all(counts):
            wrong.append("no case was run")
    wrong += judge_network(step, facts)
    notes = sorted({c["note"] for found in ranks for c in found if "note" in c})
    result = {
        "name": step.name, "work": step.work, "lanes": step.lanes, "ranks": step.ranks, "cases": len(ranks[0]),
        "result": "FAIL" if wrong else "ok", "seconds": round(outcome.seconds, 1), "notes": notes,
        "facts": {"nccl": facts.version, "network": facts.network, "vtable": facts.vtable, "nodes": facts.nodes,
                  "channels": facts.channels, "p2p_channels": facts.p2p_channels,
                  "p2p_channels_per_peer": facts.p2p_channels_per_peer, "ring_channels": facts.ring_channels,
                  "speed": facts.speed, "via": sorted(facts.via), "messages": facts.messages, "bytes": facts.bytes,
                  "lanes": facts.lanes,
                  "chosen": {" ".join(k): n for k, n in sorted(facts.chosen.items())}},
    }
    if wrong:
        result["reason"] = wrong[0] + (" (and %d more)" % (len(wrong) - 1) if len(wrong) > 1 else "")
        result["wrong"] = wrong
    if step.work == "busbw":
        result["busbw"] = [c for c in ranks[0] if c["case"] == "busbw"]
    elif step.work in ("abort", "death"):
        result["timing"] = [c for found in ranks for c in found if "ms" in c or "at" in c]
    return result


def judge_network(step, facts):
    """Whether the traffic went where it was to go, as far as NCCL's log tells."""
    wrong = []
    want = "socket" if step.lanes == "socket" else "mesh"
    if facts.network is None:
        wrong.append("NCCL's log does not say which network it uses")
    elif facts.network.lower() != want:
        wrong.append("NCCL uses network %s, not %s" % (facts.network, want))
    if facts.nodes is not None and facts.nodes != step.ranks:
        wrong.append("NCCL sees %d nodes, not %d: a different NCCL_HOSTID for each rank had no effect" % (facts.nodes, step.ranks))
    if step.lanes == "socket":
        return wrong
    if facts.vtable is None:
        wrong.append("NCCL's log does not name the plugin's vtable")
    wrong += judge_lanes(step, facts)
    if step.lanes == "gdr" and not all("/GDRDMA" in via for via in facts.via or [""]):
        wrong.append("NCCL's channels do not use GPU memory: %s, without /GDRDMA" % (", ".join(sorted(facts.via)) or "none in its log"))
    if facts.channels is not None and facts.channels > report.MOST_CHANNELS:
        wrong.append("NCCL opened %d channels, more than %d: the plugin's properties mislead it" % (facts.channels, report.MOST_CHANNELS))
    return wrong


def judge_lanes(step, facts):
    """Whether the plugin's connections have lanes of the step's kind."""
    if not facts.lanes:
        return ["no connection of the plugin in NCCL's log"]
    other = [pair for pair, lanes in facts.lanes.items() if (" tcp " in lanes) != (step.lanes == "tcp")]
    return ["lanes of another kind than %s: %s" % (step.lanes, "; ".join(other))] if other else []


def judge_death(step, outcome, ranks, logs):
    """The last rank killed itself; the others ended by themselves soon after, knowing why."""
    last = step.ranks - 1
    deaths = [c["at"] for c in ranks[last] if c["case"] == "dies"]
    if not deaths:
        return ["rank %d never came to its death" % last] + ([outcome.describe()] if outcome.describe() else [])
    wrong = []
    if outcome.codes[last] == 0:
        wrong.append("rank %d survived its death" % last)
    for r in range(last):
        told = [c for c in ranks[r] if c["case"] == "told"]
        after = outcome.ended[r] - outcome.ended[last]
        if r in outcome.stopped:
            wrong.append("rank %d was still waiting %.0f s after rank %d's death" % (r, after, last))
        elif outcome.codes[r] == 0 and not told:
            wrong.append("rank %d ended as if nothing had happened" % r)
        elif after > DEATH_LIMIT:
            wrong.append("rank %d learnt of the death only after %.0f s" % (r, after))
        elif not any(word in logs[r] for word in TOLD):
            wrong.append("rank %d ended without a word about its peer" % r)
    return wrong


def bad_end(outcome, directory):
    """How the ranks ended, and the last line of the first that ended badly by itself; empty when all went well."""
    text = outcome.describe()
    for r, code in enumerate(outcome.codes):
        lines = read(directory / ("rank%d.log" % r)).strip().splitlines()
        if code not in (0, None) and lines:
            return "%s (%s)" % (text, lines[-1].strip()[:300])
    return text


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""
