#!/usr/bin/env python3
"""Baton's engine and llama.cpp on the same file and threads, in one run, in turns.

  pip install llama-cpp-python         (built on this machine: CMAKE_ARGS="-DGGML_NATIVE=ON")
  tests/bench/beside_llama_cpp.py MODEL.gguf [--threads 1 2] [--rounds 3]

Prefill of 512 tokens; decode at B=1 with a context of 128. Prints tokens per second (best of the
rounds) and the ratio.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "build" / "release" / "tests" / "bench" / "bench_engine"


def llama(model, threads):
    from llama_cpp import Llama

    peer = Llama(model, n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads,
                 verbose=False, logits_all=False)  # fmt: skip
    ids = [(7 * i) % 40000 + 20 for i in range(512)]
    peer.eval(ids)  # once, to have everything in memory
    peer.reset()
    start = time.perf_counter()
    peer.eval(ids)
    prefill = 512 / (time.perf_counter() - start)
    peer.reset()
    peer.eval(ids[:128])
    start = time.perf_counter()
    for token in ids[128:192]:
        peer.eval([token])
    decode = 64 / (time.perf_counter() - start)
    return {"prefill 512": prefill, "decode B=1": decode}


def baton(model, threads):
    found = {}
    for name, of_engine in (("prefill 512", "prefill 512"), ("decode B=1", "decode B=1 context 128")):
        command = [BENCH, model, "--threads", str(threads), "--json", "--quick", "--only", of_engine]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        line = next(line for line in json.loads(output)[0]["lines"] if line["name"] == of_engine)
        found[name] = line["tokens"] / line["median_s"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'threads':8}{'':14}{'llama.cpp':>12}{'Baton':>12}{'ratio':>8}")
    for threads in arguments.threads:
        best = [{}, {}]
        for _ in range(arguments.rounds):
            for results, measure in zip(best, (llama, baton)):
                for name, value in measure(arguments.model, threads).items():
                    results[name] = max(value, results.get(name, 0))
        for name in best[0]:
            print(f"{threads:<8}{name:14}{best[0][name]:12.0f}{best[1][name]:12.0f}{best[1][name] / best[0][name]:8.2f}")


if __name__ == "__main__":
    main()
