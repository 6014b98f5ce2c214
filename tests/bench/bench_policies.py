#!/usr/bin/env python3
"""One trace of requests through a cluster under each policy: what it gains and what it costs.

  tests/bench/bench_policies.py [MODEL.gguf] [--requests 120] [--rounds 2] [--ranks 3]

Prompts of mixed lengths, some of which begin alike; all are submitted as the trace says, which is faster than
the cluster computes them. Without MODEL a tiny one is made. Prints, for each setting and relative to the
first line of its group: requests per second, time to first token (median, 95th percentile), time per further
token, and what the server counted. Ratios are of medians over the rounds; settings take turns.
"""

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

import harness  # noqa: E402

# Group, setting, arguments of `baton serve`. The first of a group is what the others are held against.
SETTINGS = [
    ("packing", "buckets", ("--pack-policy", "buckets")),
    ("packing", "token_budget", ("--pack-policy", "token_budget")),
    ("packing", "one by one", ("--max-prompts-per-pack", "1")),
    ("decode steps", "1", ("--min-decode-steps", "1")),
    ("decode steps", "2", ("--min-decode-steps", "2")),
    ("decode steps", "5", ("--min-decode-steps", "5")),
    ("decode steps", "10", ("--min-decode-steps", "10")),
    ("prefix cache", "off", ("--no-prefix-cache",)),
    ("prefix cache", "on", ()),
    ("local prefill", "0", ("--local-prefill-tokens", "0")),
    ("local prefill", "auto", ("--local-prefill-tokens", "auto")),
    ("local prefill", "64", ("--local-prefill-tokens", "64")),
    ("local prefill", "all", ("--local-prefill-tokens", "100000")),
]


def make_trace(requests, vocabulary, context, rate, seed=7):
    """(seconds after the one before, request): chats that begin alike, short questions, a few long documents."""
    draw = random.Random(seed)
    ids = lambda n: [draw.randrange(3, vocabulary) for _ in range(n)]  # noqa: E731
    systems = [ids(200), ids(90)]
    trace = []
    for number in range(requests):
        kind = draw.random()
        if kind < 0.5:
            prompt = draw.choice(systems) + ids(draw.randrange(5, 60))
        elif kind < 0.9:
            prompt = ids(draw.randrange(4, 64))
        else:
            prompt = ids(draw.randrange(300, min(800, context // 2)))
        ask = dict(ids=prompt, max_tokens=draw.randrange(4, 40), top_logprobs=-1, seed=number, temperature=0.7)
        trace.append((draw.expovariate(rate), ask))
    return trace


class Measured:
    def __init__(self):
        self.rate, self.first, self.late, self.each = [], [], [], []
        self.counters = {}


def counters(status):
    found = dict(status.counters)
    for worker in status.workers:
        for name, value in worker.counters.items():
            found[f"{worker.role} {name}"] = found.get(f"{worker.role} {name}", 0) + value
    return found


def replay(cluster, trace):
    """One pass; (requests/s, median and 95th percentile of the first token, seconds per further token)."""
    with cluster.client() as client:
        start = time.monotonic()
        streams = []
        due = start
        for pause, ask in trace:
            due += pause
            time.sleep(max(0, due - time.monotonic()))
            streams.append(client.submit(**ask))
        usages = [s.result.usage for s in streams]
        took = time.monotonic() - start
        first = sorted(u.ttft_us / 1e6 for u in usages)
        each = [(u.total_us - u.ttft_us) / 1e6 / (u.completion_tokens - 1) for u in usages if u.completion_tokens > 1]
        rest = harness.wait_for_value(lambda: counters(client.status()), 3)
    return len(trace) / took, statistics.median(first), first[len(first) * 95 // 100], statistics.median(each), rest


def run(model, ranks, settings, trace, rounds, common):
    measured = {s: Measured() for s in settings}
    for _ in range(rounds):
        for setting in settings:
            with harness.Cluster(model, ranks, (*common, *setting[2])) as cluster:
                rate, first, late, each, counters = replay(cluster, trace)
            m = measured[setting]
            m.rate.append(rate), m.first.append(first), m.late.append(late), m.each.append(each)
            m.counters = counters
    return measured


def counted(c):
    """The counters that tell why."""
    get = lambda name: c.get(name, 0)  # noqa: E731
    share = lambda part, whole: f"{100 * part / whole:.0f}%" if whole else "-"  # noqa: E731
    packs = ", ".join(f"{n[14:]} {c[n]}" for n in sorted(c) if n.startswith("prefill packs_") and c[n])
    rows, idle = get("decode step_rows"), get("decode slots_idle")
    return (
        f"pack fill {share(get('prefill step_tokens'), get('prefill step_room'))} ({packs}); "
        f"slots used {share(rows, rows + idle)}; overshoot {get('decode overshoot')}; "
        f"cache hit {share(get('prefill cache_hit'), get('prefill cache_asked'))}; local {get('local_prefills')}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2000, help="requests a second in the trace")
    parser.add_argument("--group", action="append", help="only this group (may be repeated)")
    asked = parser.parse_args()
    model = asked.model or harness.tiny_model("--type", "Q4_1", "--context", "2048")
    trace = make_trace(asked.requests, 500 if not asked.model else 40000, 2048, asked.rate)
    tokens = sum(len(ask["ids"]) for _, ask in trace)
    print(f"{asked.requests} requests, {tokens} prompt tokens, {asked.ranks} ranks, {asked.rounds} rounds")
    print(f"{'':26}{'requests/s':>12}{'first token':>13}{'95 %':>8}{'per token':>11}   counted")
    for group in dict.fromkeys(g for g, *_ in SETTINGS):
        if asked.group and group not in asked.group:
            continue
        settings = [s for s in SETTINGS if s[0] == group]
        # Each group alone: what the others are about is off.
        off = []
        if group != "prefix cache":
            off.append("--no-prefix-cache")
        if group != "local prefill":
            off += ["--local-prefill-tokens", "0"]
        measured = run(model, asked.ranks, settings, trace, asked.rounds, off)
        base = measured[settings[0]]
        median = statistics.median
        for setting in settings:
            m = measured[setting]
            ratio = lambda of: median(getattr(m, of)) / max(median(getattr(base, of)), 1e-9)  # noqa: B023, E731
            name = f"{group}: {setting[1]}"
            print(f"{name:26}{ratio('rate'):12.2f}{ratio('first'):13.2f}{ratio('late'):8.2f}{ratio('each'):11.2f}"
                  f"   {counted(m.counters)}", flush=True)  # fmt: skip
            if setting is settings[0]:
                print(f"{'  (in absolute terms)':26}{median(m.rate):12.1f}{median(m.first) * 1e3:10.1f} ms"
                      f"{median(m.late) * 1e3:5.0f} ms{median(m.each) * 1e3:8.2f} ms", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
