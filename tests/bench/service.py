"""The whole service under load: `baton serve` alone or as ranks, asyncio clients beside it."""

import asyncio
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

import harness  # noqa: E402
from baton_client import AsyncClient, BatonError  # noqa: E402

PROMPT, OUTPUT = 128, 64  # tokens
GOOD_TTFT_S, GOOD_ITL_S = 2.0, 0.1  # of a job that counts for goodput


async def job(client, number, results):
    start = time.perf_counter()
    ids = [(7 * i + 131 * number) % 40000 + 20 for i in range(PROMPT)]
    arrivals = []
    try:
        stream = await client.submit(ids=ids, max_tokens=OUTPUT, ignore_eos=True)
        async for part in stream:
            arrivals += [time.perf_counter()] * len(part.ids)
        await stream.wait()
    except BatonError as error:
        results.append({"error": error.code})
        return
    results.append({"start": start, "arrivals": arrivals})


async def at_concurrency(endpoint, clients, jobs):
    """`clients` connections, each with one job at a time."""
    results, numbers = [], iter(range(jobs))

    async def one():
        async with AsyncClient(endpoint) as client:
            for number in numbers:
                await job(client, number, results)

    await asyncio.gather(*(one() for _ in range(clients)))
    return results


async def at_rate(endpoint, rate, jobs):
    """Jobs begin at fixed moments, whether those before have ended or not."""
    results, running = [], []
    async with AsyncClient(endpoint) as client:
        begin = time.perf_counter()
        for number in range(jobs):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            running.append(asyncio.create_task(job(client, number, results)))
        await asyncio.gather(*running)
    return results


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def summary(name, concurrency, results):
    good = [r for r in results if "arrivals" in r and r["arrivals"]]
    if not good:
        raise RuntimeError(f"{name}: no job succeeded")
    ttft = [r["arrivals"][0] - r["start"] for r in good]
    gaps = [b - a for r in good for a, b in zip(r["arrivals"], r["arrivals"][1:])]
    seconds = max(r["arrivals"][-1] for r in good) - min(r["start"] for r in good)
    tokens = sum(len(r["arrivals"]) for r in good)
    kept = sum(1 for r, first in zip(good, ttft)
               if first <= GOOD_TTFT_S and
               (r["arrivals"][-1] - r["arrivals"][0]) / max(1, len(r["arrivals"]) - 1) <= GOOD_ITL_S)
    itl = statistics.fmean(gaps)
    return {
        "name": name, "concurrency": concurrency, "tokens_per_s": tokens / seconds,
        "decode_tokens_per_s": (concurrency or 1) / itl,
        "ttft_p50_ms": 1e3 * percentile(ttft, 0.5), "ttft_p99_ms": 1e3 * percentile(ttft, 0.99),
        "itl_p50_ms": 1e3 * percentile(gaps, 0.5), "itl_p99_ms": 1e3 * percentile(gaps, 0.99),
        "goodput": kept / len(results),
    }


def at_concurrencies(cluster, several, jobs_each):
    """A summary per number of clients, each of which has `jobs_each` jobs in turn."""
    asyncio.run(at_concurrency(cluster.endpoint, 2, 4))  # warm
    for clients in several:
        jobs = max(16, jobs_each * clients)
        yield summary(f"{clients} clients", clients, asyncio.run(at_concurrency(cluster.endpoint, clients, jobs)))


def one_process(model, threads, quick):
    """Yields a summary per load."""
    with harness.Cluster(model, 1, ("--threads", str(threads))) as cluster:
        yield from at_concurrencies(cluster, (8,) if quick else (1, 8, 32), 2 if quick else 4)
        for rate in () if quick else (2, 6):
            yield summary(f"{rate} jobs a second", None, asyncio.run(at_rate(cluster.endpoint, rate, 12 * rate)))


# How prefill and decode share the cores of one machine: name, ranks, arguments.
def splits(threads):
    all_cores, half = ("--threads", str(threads)), ("--threads", str(max(1, threads // 2)))
    local = ("--local-prefill-tokens",)
    return [
        ("one process", 1, all_cores),
        ("ranks, half the cores each", 3, (*half, *local, "0")),
        ("ranks, all cores both", 3, (*all_cores, *local, "0")),
        ("half each, local prefill auto", 3, (*half, *local, "auto")),
        ("as by default", 3, ()),
    ]


def each_split(model, threads, quick):
    """Yields (name of the split, summary)."""
    for name, ranks, arguments in splits(threads):
        with harness.Cluster(model, ranks, arguments) as cluster:
            for load in at_concurrencies(cluster, (8,), 2 if quick else 6):
                yield name, load
