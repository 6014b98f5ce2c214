"""The whole service under load: `baton serve` as one process, asyncio clients beside it."""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "launch" / "python"))

from baton_client import AsyncClient, BatonError  # noqa: E402

PROMPT, OUTPUT = 128, 64  # tokens
GOOD_TTFT_S, GOOD_ITL_S = 2.0, 0.1  # of a job that counts for goodput


class Server:
    """A server of this benchmark's own, on a free port; a context manager that gives the endpoint."""

    def __init__(self, baton, model, threads):
        self._folder = tempfile.TemporaryDirectory(prefix="baton-bench-")
        self._ready = Path(self._folder.name) / "ready"
        self._process = subprocess.Popen(
            [str(baton), "serve", "--model", model, "--client-endpoint", "tcp://127.0.0.1:*", "--threads",
             str(threads), "--ready-file", str(self._ready), "--log-level", "error"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + 60
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("baton serve did not become ready")
            time.sleep(0.02)
        return dict(line.split("=", 1) for line in self._ready.read_text().split())["endpoint"]

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._folder.cleanup()


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


def measure(baton, model, threads, quick):
    """Yields a summary per load."""
    with Server(baton, model, threads) as endpoint:
        asyncio.run(at_concurrency(endpoint, 2, 4))  # warm
        for clients in (8,) if quick else (1, 8, 32):
            jobs = 2 * clients if quick else max(16, 4 * clients)
            yield summary(f"{clients} clients", clients, asyncio.run(at_concurrency(endpoint, clients, jobs)))
        for rate in () if quick else (2, 6):
            yield summary(f"{rate} jobs a second", None, asyncio.run(at_rate(endpoint, rate, 12 * rate)))
