"""Instances of several ranks in real clusters: the same tokens and log-probabilities as one process, in every pairing
of shapes; what happens when a member dies; what is refused at start."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness
from equality_test import one_by_one, together

TINY = ("--type", "Q4_1", "--layers", "3", "--heads", "8", "--kv-heads", "2", "--hidden", "256", "--ffn", "256")


class ClusterFile:
    """A cluster file in a folder of its own."""

    def __init__(self, text):
        self._folder = tempfile.TemporaryDirectory(prefix="baton-test-")
        self.path = str(Path(self._folder.name) / "cluster.toml")
        Path(self.path).write_text(text, encoding="ascii")


def table(role, **values):
    lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[[{role}]]", *lines, ""])


def refusal(*arguments, ranks=1, model=None):
    """The status and the words of a server that must not start."""
    serve = [harness.BATON, "serve", "--model", model or harness.tiny_model(*TINY),
             "--client-endpoint", "tcp://127.0.0.1:*", *arguments]
    launcher = ["mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    if os.getuid() == 0:
        launcher.insert(1, "--allow-run-as-root")
    run = subprocess.run(serve if ranks == 1 else [*launcher, *serve], capture_output=True, text=True, timeout=120)
    return run.returncode, run.stderr


class Shapes(unittest.TestCase):
    """Every pairing gives what one process gives."""

    @classmethod
    def setUpClass(cls):
        model = harness.tiny_model(*TINY)
        with harness.Cluster(model, ranks=1) as cluster, cluster.client() as client:
            cls.expected = together(client, 8)

    def check(self, ranks, arguments):
        arguments = (*arguments, "--local-prefill-tokens", "0")  # every prompt is handed over
        with harness.Cluster(harness.tiny_model(*TINY), ranks=ranks, arguments=arguments) as cluster:
            with cluster.client() as client:
                self.assertEqual(together(client, 8), self.expected)
                self.assertEqual(one_by_one(client, 8), self.expected)
                return client.status(), cluster.log()

    def test_flags_for_both_sides(self):
        for ranks, arguments in [
            (1, ("--prefill-block-size", "64", "--decode-block-size", "16")),
            (5, ("--tensor-parallel-size", "2")),
            (5, ("--prefill-tp", "3", "--decode-tp", "1")),
            (5, ("--prefill-tp", "1", "--decode-pp", "3")),
        ]:
            with self.subTest(arguments):
                self.check(ranks, arguments)

    def test_T36_T37_T38_eight_ranks_to_one_and_one_to_eight(self):
        for prefill, decode in ((8, 1), (1, 8)):  # of two kv-heads: four ranks have each
            with self.subTest(prefill=prefill, decode=decode):
                arguments = ("--prefill-tp", str(prefill), "--decode-tp", str(decode), "--threads", "1")
                self.check(10, arguments)

    def test_T41_stages_to_tensor_parallel_ranks(self):
        for ranks, arguments in [
            (6, ("--prefill-pp", "2", "--decode-tp", "3")),
            (6, ("--prefill-tp", "2", "--prefill-pp", "2")),
        ]:
            with self.subTest(arguments):
                self.check(ranks, (*arguments, "--threads", "1"))

    def test_a_cluster_file_of_many_shapes(self):
        file = ClusterFile(
            table("prefill", tensor_parallel=2, threads=1, block_size=32)
            + table("prefill", threads=1)
            + table("decode", tensor_parallel=3, threads=1)
            + table("decode", pipeline_parallel=2, tensor_parallel=2, block_size=64, threads=1)
        )
        status, log = self.check(11, ("--cluster", file.path))
        self.assertEqual([w.rank for w in status.workers], [1, 3, 4, 7])
        self.assertIn("tp 2 x pp 2", log)
        self.assertIn("7-10", log)

    @unittest.skipUnless(harness.REAL_MODEL, "the real model is neither cached nor to be fetched")
    def test_the_real_model_on_2_and_3_ranks(self):
        with harness.Cluster(harness.REAL_MODEL, ranks=1) as cluster, cluster.client() as client:
            expected = together(client, 6)
        arguments = ("--prefill-tp", "2", "--decode-tp", "3", "--threads", "1")
        with harness.Cluster(harness.REAL_MODEL, ranks=6, arguments=arguments) as cluster:
            with cluster.client() as client:
                self.assertEqual(together(client, 6), expected)


class Deaths(unittest.TestCase):
    def test_a_dead_member_is_a_pause_and_never_a_token(self):
        """kill -9 of a member that is not the first: its instance goes as a whole, the others take over."""
        self.lose_a_member(signal.SIGKILL, "ended")

    def test_a_frozen_member_is_a_longer_pause(self):
        self.lose_a_member(signal.SIGSTOP, "is stopped")

    def lose_a_member(self, number, words):
        model = harness.tiny_model(*TINY)
        job = dict(ids=[5, 6, 7, 8], max_tokens=200, ignore_eos=True, temperature=0.8, seed=3)
        with harness.Cluster(model, ranks=1) as cluster, cluster.client() as client:
            expected = client.submit(**job).result
        file = ClusterFile(table("prefill", threads=1) + table("decode", instances=2, tensor_parallel=2, threads=1))
        arguments = ("--cluster", file.path, *harness.SLOW_STEPS)
        with harness.Cluster(model, ranks=6, arguments=arguments) as cluster, cluster.client() as client:
            streams = [client.submit(**job) for _ in range(3)]
            time.sleep(0.4)
            members = [cluster.rank_pid(rank) for rank in (2, 3)]
            cluster.kill_rank(3, number)
            for stream in streams:
                self.assertEqual(stream.result.ids, expected.ids)
                self.assertEqual(stream.result.logprobs, expected.logprobs)
            self.assertTrue(any(s.result.usage.attempts > 0 for s in streams), "nobody was moved")
            if number == signal.SIGSTOP:
                cluster.kill_rank(3, signal.SIGCONT)  # it finds its instance broken, and leaves
            harness.wait_for(lambda: not any(harness.alive(pid) for pid in members), 10, "the instance ends")
            self.assertRegex(cluster.log(), rf"is over: rank 3 .*{words}")
            dead = [w.rank for w in client.status().workers if not w.alive]
            self.assertLessEqual(set(dead), {2})
            harness.wait_for(lambda: harness.idle(client.status()), 10, "idle")

    def test_nothing_is_left_when_a_first_rank_or_all_die(self):
        model = harness.tiny_model(*TINY)
        arguments = ("--decode-tp", "3", "--threads", "1")
        with harness.Cluster(model, ranks=5, arguments=arguments) as cluster, cluster.client() as client:
            client.submit(ids=[1, 2, 3], max_tokens=4).result
            pids = [cluster.rank_pid(rank) for rank in range(5)]
            cluster.kill_rank(2)  # the first of the decode instance
            harness.wait_for(lambda: not any(harness.alive(pid) for pid in pids[2:]), 10, "its members leave")
            self.assertTrue(all(harness.alive(pid) for pid in pids[:2]))
            os.kill(cluster.process.pid, signal.SIGKILL)
            harness.wait_for(lambda: not any(harness.alive(pid) for pid in pids), 10, "all leave")

    def test_it_ends_in_order(self):
        arguments = ("--tensor-parallel-size", "2", "--threads", "1")
        with harness.Cluster(harness.tiny_model(*TINY), ranks=5, arguments=arguments) as cluster:
            pids = [cluster.rank_pid(rank) for rank in range(5)]
            self.assertEqual(cluster.stop(), 0)
            self.assertFalse(any(harness.alive(pid) for pid in pids))
            self.assertNotIn("is over", cluster.log())


class Refusals(unittest.TestCase):
    def expect(self, words, *arguments, ranks=1, model=None):
        status, said = refusal(*arguments, ranks=ranks, model=model)
        if ranks == 1:  # mpirun hides it
            self.assertEqual(status, 64)
        for word in words:
            self.assertIn(word, said)

    def test_what_cannot_be_is_refused_with_numbers(self):
        self.expect(["mpirun -np 4"], "--decode-tp", "2")
        self.expect(["mpirun started 4", "2 ranks"], "--tensor-parallel-size", "2", ranks=4)
        self.expect(["8", "query heads"], "--decode-tp", "9", ranks=11)
        self.expect(["3", "layers"], "--decode-pp", "4", ranks=6)
        self.expect(["--prefill-block-size is 24"], "--prefill-block-size", "24")
        self.expect(["--prefill-kv-dtype is 'fp8'"], "--prefill-kv-dtype", "fp8")
        file = ClusterFile(table("prefill") + table("decode", tensor_paralel=2))
        self.expect([f"{file.path}:3", "did you mean 'tensor-parallel'"], "--cluster", file.path)
        file = ClusterFile(table("prefill") + table("decode", tensor_parallel=2))
        self.expect(["mpirun -np 4", "mpirun started 5"], "--cluster", file.path, ranks=5)
        self.expect(["--cluster and --decode-tp"], "--cluster", file.path, "--decode-tp", "2", ranks=4)


if __name__ == "__main__":
    unittest.main()
