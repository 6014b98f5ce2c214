#!/usr/bin/env python3
"""What an update of the weights costs the requests that run meanwhile, as ratios within one run.

    BATON_BINARY=build/release/launch/baton tests/bench/bench_weights.py MODEL.gguf

Streams decode without a pause; after a while the same file is served again as the next version. Printed
are the tokens per second while the workers prepare against those before, and the longest gap between
two tokens of a stream around the commit against the median gap, for each policy.
"""

import argparse
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
sys.dont_write_bytecode = True

import harness  # noqa: E402


class Stream(threading.Thread):
    """Reads one stream and notes when its tokens came."""

    def __init__(self, client, number, tokens):
        super().__init__(daemon=True)
        self.times = []
        self._stream = client.submit(ids=[5 + number, 6, 7], max_tokens=tokens, ignore_eos=True, seed=number)
        self.start()

    def run(self):
        try:
            for part in self._stream:
                self.times += [time.monotonic()] * len(part.ids)
        except harness.BatonError as error:
            if error.code != "cancelled":
                raise


def rate(streams, begin, end):
    count = sum(begin <= at < end for stream in streams for at in stream.times)
    return count / (end - begin)


def longest_gap(streams, begin, end):
    """Seconds between neighbouring tokens of one stream, of those that ended within the time."""
    gaps = [b - a for s in streams for a, b in zip(s.times, s.times[1:]) if begin <= b < end]
    return max(gaps) if gaps else 0.0


def median_gap(streams, begin, end):
    gaps = [b - a for s in streams for a, b in zip(s.times, s.times[1:]) if begin <= b < end and b > a]
    return statistics.median(gaps)


def measure(cluster, model, policy, options):
    with cluster.client() as client, cluster.client() as operator:
        streams = [Stream(client, number, options.tokens) for number in range(options.streams)]
        while not all(len(stream.times) > 8 for stream in streams):
            time.sleep(0.01)
        calm = time.monotonic()
        time.sleep(options.seconds)
        asked = time.monotonic()
        outcome = operator.update_weights(model, policy=policy, wait_retired=policy != "finish")
        served = time.monotonic()
        time.sleep(options.seconds / 2)
        end = time.monotonic()
        prepared = asked + outcome.prepare_us / 1e6
        for stream in streams:
            stream._stream.cancel()
        for stream in streams:
            stream.join()
        before, during = rate(streams, calm, asked), rate(streams, asked, prepared)
        usual = median_gap(streams, calm, asked)
        pause = longest_gap(streams, prepared, end)
        worst = longest_gap(streams, calm, asked)
        print(f"{policy:<9} prepared in {prepared - asked:6.2f} s (served {served - asked:6.2f} s); tokens/s while it "
              f"prepares {during / before:5.2f} of before; longest gap {pause / usual:6.1f} medians "
              f"(without an update {worst / usual:5.1f}; median {usual * 1e3:.2f} ms)")  # fmt: skip
        harness.wait_for(lambda: operator.status().update.phase == "idle", 60, "the old weights are gone")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring before the update")
    parser.add_argument("--ranks", type=int, default=3)
    options = parser.parse_args()
    model = str(Path(options.model).resolve())
    with harness.Cluster(model, ranks=options.ranks) as cluster:
        for policy in ("finish", "continue"):
            measure(cluster, model, policy, options)


if __name__ == "__main__":
    main()
