"""Hand-offs in real clusters: in groups of layers, without digests, and when a rank dies while pieces are on their way."""

import os
import signal
import subprocess
import time
import unittest

import harness
from equality_test import one_by_one, together
from parallel_test import TINY, ClusterFile, refusal, table

# 32 KiB of KV per token: a prompt of 800 tokens goes in two dozen messages.
WIDE = ("--type", "Q8_0", "--layers", "8", "--hidden", "512", "--heads", "8", "--kv-heads", "8", "--ffn", "32",
        "--context", "1024")
PROMPT = [(7 * i + 3) % 509 + 3 for i in range(800)]
KV = ("--kv-cache-dtype", "f32", "--kv-cache-memory", "96MiB")
JOB = dict(ids=PROMPT, max_tokens=3, ignore_eos=True, temperature=0.8, seed=11, top_logprobs=2)

# Longer than the workers' beats are apart, so that a step can be seen to run; with what follows
# shorter than the 2.5 s after which a stopped rank counts as dead.
STEP_US = 900_000


class MidTransfer(unittest.TestCase):
    """The decode rank is stopped before the prompt is computed, so no piece beyond what MPI buffers can arrive; then
    a side dies."""

    @classmethod
    def setUpClass(cls):
        cls.model = harness.tiny_model(*WIDE)
        with harness.Cluster(cls.model, ranks=1, arguments=KV) as cluster, cluster.client() as client:
            cls.expected = client.submit(**JOB).result

    def test_the_sender_is_killed_and_then_a_stopped_receiver_itself(self):
        # Blocks of two sizes: the sender packs every piece.
        arguments = ("--min-step-us", str(STEP_US), "--local-prefill-tokens", "0", "--no-prefix-cache",
                     "--threads", "1", "--prefill-block-size", "32", *KV)  # fmt: skip
        for _ in range(5):  # a machine too slow for the moment is tried again
            with harness.Cluster(self.model, ranks=5, arguments=arguments) as cluster, cluster.client() as client:
                pids = {rank: cluster.rank_pid(rank) for rank in range(1, 5)}
                if self.disturb(client, pids, lambda prefill, decode: prefill, deaths=1) and self.disturb(
                    client, pids, lambda prefill, decode: decode, deaths=2  # by those that were left
                ):
                    return
        self.fail("never done before the stopped rank counted as dead")

    def disturb(self, client, pids, victim_of, deaths):
        """False: the receiver was stopped for so long that it may count as dead; the result is right all the same."""
        stream = client.submit(**JOB)
        prefill, decode = self.busy(client, "prefill"), self.busy(client, "decode")
        stopped = time.monotonic()
        os.kill(pids[decode], signal.SIGSTOP)
        parts = [stream.next()]  # from the prefill rank, when the pieces are on their way
        victim = victim_of(prefill, decode)
        harness.wait_for(lambda: client.status().requests["transfer"] == 1, 1, "the transfer is under way")
        time.sleep(0.05)
        self.assertEqual(client.status().requests["transfer"], 1)
        os.kill(pids[victim], signal.SIGKILL)
        os.kill(pids[decode], signal.SIGCONT)
        in_time = time.monotonic() - stopped < 2.2
        while (part := stream.next()) is not None:
            parts.append(part)
        result = stream.result
        self.assertEqual([token for part in parts for token in part.ids], self.expected.ids)
        for field in ("ids", "logprobs", "top", "finish"):
            self.assertEqual(getattr(result, field), getattr(self.expected, field), field)
        if not in_time:
            return False
        self.assertEqual(result.usage.attempts, 1)
        self.assertNotIn(victim, (result.usage.prefill_rank, result.usage.decode_rank))
        self.assertGreater(result.usage.kv_bytes, 20 << 20)
        harness.wait_for(lambda: harness.idle(client.status()), 10, "pools full")
        status = client.status()
        ends = [status.counters[name] for name in ("finished", "failed", "cancelled", "deaths")]
        self.assertEqual(ends, [deaths, 0, 0, deaths])
        self.assertEqual(sum(worker.blocks_quarantined for worker in status.workers if worker.alive), 0)
        return True

    def busy(self, client, role):
        """The rank of this role that works for the request."""
        found = []

        def look():
            found[:] = [w.rank for w in client.status().workers
                        if w.role == role and (w.running or w.queued or w.blocks_free < w.blocks)]  # fmt: skip
            return found

        harness.wait_for(look, 1, f"a {role} rank is busy")
        return found[0]


class Terms(unittest.TestCase):
    """How KV is handed over is said on the command line or in a cluster file, and moves no bit."""

    HANDED = ("--local-prefill-tokens", "0", "--no-prefix-cache", "--threads", "1")

    @classmethod
    def setUpClass(cls):
        with harness.Cluster(harness.tiny_model(*TINY), ranks=1) as cluster, cluster.client() as client:
            cls.expected = together(client, 8)

    def run_with(self, ranks, *arguments):
        """The terms as the status has them, and the messages that the prompts went in."""
        model = harness.tiny_model(*TINY)
        with harness.Cluster(model, ranks=ranks, arguments=(*self.HANDED, *arguments)) as cluster:
            with cluster.client() as client:
                self.assertEqual(one_by_one(client, 8), self.expected)

                def pieces():
                    return sum(w.counters["pieces_sent"] for w in client.status().workers if w.role == "prefill")

                sent = harness.wait_for_value(pieces, 5)
                status = client.status()
                shown = subprocess.run([harness.BATON, "status", "--endpoint", cluster.endpoint], check=True,
                                       capture_output=True, text=True).stdout  # fmt: skip
                return (status.kv_layer_groups, status.kv_digests), sent, shown

    def test_groups_of_layers_and_no_digests_give_the_same_bits(self):
        shapes = ("--prefill-tp", "2", "--decode-tp", "3", "--decode-block-size", "32")
        plain, pieces, shown = self.run_with(6, *shapes)
        self.assertEqual(plain, (1, True))
        self.assertIn("hand-off: in 1 group of layers, digested", shown)
        terms, more_pieces, shown = self.run_with(6, *shapes, "--kv-layer-groups", "3", "--no-kv-digests")
        self.assertEqual(terms, (3, False))
        self.assertIn("hand-off: in 3 groups of layers, without digests", shown)
        self.assertGreater(pieces, 0)
        self.assertEqual(more_pieces, 3 * pieces)

    def test_a_cluster_file_says_it_too(self):
        file = ClusterFile(
            "kv-layer-groups = 2\nkv-digests = false\n"
            + table("prefill", pipeline_parallel=2)
            + table("decode", tensor_parallel=2, block_size=64)
        )
        terms, *_ = self.run_with(5, "--cluster", file.path, "--kv-layer-groups", "3")
        self.assertEqual(terms, (2, False))

    def test_what_cannot_be_is_refused_with_numbers(self):
        for arguments, words in [
            (("--kv-layer-groups", "0"), "--kv-layer-groups is 0; expected 1 to 1024"),
            (("--kv-layer-groups", "4"), "kv-layer-groups is 4, but the model has 3 layers"),
        ]:
            with self.subTest(arguments):
                status, said = refusal(*arguments)
                self.assertEqual(status, 64)
                self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
