"""Prefill and decode instances that hold KV in different ways: the bits of a cluster whose two sides are alike."""

import os
import signal
import tempfile
import threading
import unittest

import harness
from equality_test import outcome, requests
from parallel_test import TINY

NEW = 12


def answers(client):
    """Every request of equality_test, all at once: what came, and whether each says that it is exact."""
    streams = [client.submit(**request) for request in requests(NEW)]
    results = [stream.result for stream in streams]
    return [outcome(result) for result in results], [result.usage.exact for result in results]


def counters(client):
    return client.status().counters


class Pairings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = harness.tiny_model("--type", "Q4_1")
        with harness.Cluster(cls.model, ranks=1) as cluster, cluster.client() as client:
            cls.expected, exact = answers(client)
            assert all(exact)

    def run_with(self, ranks, *arguments):
        arguments = (*arguments, "--local-prefill-tokens", "0")  # every prompt is handed over
        with harness.Cluster(self.model, ranks=ranks, arguments=arguments) as cluster, cluster.client() as client:
            got, exact = answers(client)
            self.assertGreater(counters(client)["pairs_connected"], 0)
            return got, exact

    def test_T36_T37_T38_tensor_parallel_degrees_in_both_directions(self):
        for prefill, decode in ((1, 2), (2, 1), (3, 2), (1, 4), (4, 1)):
            with self.subTest(prefill=prefill, decode=decode):
                got, exact = self.run_with(1 + prefill + decode, "--prefill-tp", str(prefill), "--decode-tp", str(decode))
                self.assertEqual(got, self.expected)
                self.assertTrue(all(exact))

    def test_T44_block_sizes(self):
        for prefill, decode in ((16, 64), (64, 16), (32, 16)):
            with self.subTest(prefill=prefill, decode=decode):
                got, exact = self.run_with(3, "--prefill-block-size", str(prefill), "--decode-block-size", str(decode))
                self.assertEqual(got, self.expected)
                self.assertTrue(all(exact))

    def test_T43_another_kv_dtype_is_converted_and_results_say_that_they_are_not_exact(self):
        # Also where the conversion loses nothing: what decode adds is stored as prefill would not store it.
        for prefill, decode in (("f32", "bf16"), ("bf16", "f32"), ("f16", "bf16")):
            with self.subTest(prefill=prefill, decode=decode):
                got, exact = self.run_with(3, "--prefill-kv-dtype", prefill, "--decode-kv-dtype", decode)
                self.assertEqual([len(result[0]) for result in got], [len(result[0]) for result in self.expected])
                self.assertFalse(any(exact))

    def test_all_at_once(self):
        got, exact = self.run_with(6, "--prefill-tp", "2", "--decode-tp", "3", "--prefill-block-size", "32")
        self.assertEqual(got, self.expected)
        self.assertTrue(all(exact))


class Everything(unittest.TestCase):
    """Other layouts, packs, chunks, cached beginnings, several choices and preemption, all at once; then each alone."""

    def asks(self):
        for number in range(24):  # beginnings of which four are shared
            ids = [(number % 4 * 31 + 7 * i) % 509 + 3 for i in range(15 + 4 * number)] + [number + 3]
            yield dict(ids=ids, n=4 if number % 3 == 0 else 1, max_tokens=70, ignore_eos=True, top_logprobs=1,
                       temperature=0.8 if number % 2 else 0.0, seed=number)  # fmt: skip

    def answers(self, streams):
        return [[(c.ids, c.logprobs, c.top, c.finish) for c in s.result.choices] for s in streams]

    def test_T49_T60_T76_everything_at_once_has_the_bits_of_each_request_alone(self):
        model = harness.tiny_model(*TINY)
        with harness.Cluster(model, ranks=1) as cluster, cluster.client() as client:
            expected = [self.answers([client.submit(**ask)])[0] for ask in self.asks()]
        shapes = ("--prefill-tp", "2", "--decode-tp", "3", "--prefill-block-size", "32", "--threads", "1",
                  "--kv-cache-memory", "768KiB", "--kv-layer-groups", "2", "--prefill-chunk", "24",
                  "--min-decode-steps", "3", *harness.SLOW_STEPS)  # fmt: skip
        for policy in ("buckets", "token_budget"):
            arguments = (*shapes, "--pack-policy", policy)
            with self.subTest(policy), harness.Cluster(model, ranks=6, arguments=arguments) as cluster:
                with cluster.client() as client:
                    self.assertEqual(self.answers([client.submit(**ask) for ask in self.asks()]), expected)
                    harness.wait_for(lambda: harness.idle(client.status()), 10, "pools full")
                    self.assertGreater(counters(client)["preemptions"], 0, "the pools were large enough")

                    def happened():
                        workers = client.status().workers
                        return all(sum(w.counters.get(name, 0) for w in workers)
                                   for name in ("cache_hit", "copied_blocks", "handed_over"))  # fmt: skip

                    harness.wait_for(happened, 3, "cached beginnings, copied blocks and hand-offs")


LAYOUTS = """
[[prefill]]
tensor-parallel = 2
block-size = 32

[[prefill]]
block-size = 64

[[decode]]
tensor-parallel = 2

[[decode]]
block-size = 32
"""


class LongTrace(unittest.TestCase):
    """1,000 requests of mixed lengths through two prefill and two decode instances, all of different layouts."""

    REQUESTS = 1000
    WORKERS = 8

    def request(self, number):
        length = (1, 15, 16, 17, 31, 33, 64, 90)[number % 8] + number % 5
        return dict(ids=[(number * 7 + 13 * i) % 509 + 3 for i in range(length)], max_tokens=2 + number % 7,
                    ignore_eos=True, top_logprobs=0, temperature=0.8, seed=number)  # fmt: skip

    def run_all(self, client, between=lambda number: None):
        got = [None] * self.REQUESTS
        numbers = iter(range(self.REQUESTS))
        lock = threading.Lock()
        errors = []

        def work():
            try:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    between(number)
                    result = client.submit(**self.request(number)).result
                    got[number] = (result.usage.weights_version, result.ids, result.logprobs)
            except Exception as error:  # noqa: BLE001: said below, by the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(self.WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        return got

    def test_T49_a_killed_decode_rank_and_other_weights_in_the_middle_and_every_request_has_its_one_right_result(self):
        model = harness.tiny_model("--type", "Q4_1")
        other = harness.tiny_model("--type", "Q4_1", "--seed", "77")
        expected = {}
        for version, weights in ((1, model), (2, other)):
            with harness.Cluster(weights, ranks=1) as cluster, cluster.client() as client:
                expected[version] = [outcome[1:] for outcome in self.run_all(client)]
        self.assertNotEqual(expected[1], expected[2])
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as layouts:
            layouts.write(LAYOUTS)
            layouts.flush()
            with harness.Cluster(model, ranks=7, arguments=("--cluster", layouts.name)) as cluster:
                with cluster.client() as client:
                    victim = cluster.rank_pid(6)

                    def disturb(number):
                        if number == self.REQUESTS // 3:
                            client.update_weights(other)
                        if number == self.REQUESTS // 2:
                            os.kill(victim, signal.SIGKILL)

                    got = self.run_all(client, disturb)
                    for number, (version, *outcome) in enumerate(got):
                        self.assertEqual(tuple(outcome), expected[version][number], number)
                    self.assertGreater(min(sum(g[0] == version for g in got) for version in (1, 2)), 100)
                    status = client.status()
                    self.assertEqual(status.counters["deaths"], 1)
                    # Four pairs of placements, planned once each.
                    self.assertEqual(status.counters["plans_computed"], 4)
                    harness.wait_for(lambda: self.at_rest(client.status()), 20, "all pools full")

    def at_rest(self, status):
        return all(worker.blocks_free == worker.blocks
                   for worker in status.workers if worker.alive)  # fmt: skip


if __name__ == "__main__":
    unittest.main()
