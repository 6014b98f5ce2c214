"""Real faults on real clusters: killed ranks, stopped ranks, clients that vanish, cancels."""

import os
import random
import signal
import subprocess
import sys
import threading
import unittest

import harness

LONG = dict(max_tokens=300, ignore_eos=True, top_logprobs=0)


def prompts(count, seed):
    draw = random.Random(seed)
    return [[draw.randrange(3, 512) for _ in range(draw.randrange(4, 150))] for _ in range(count)]


def streams_of(client, ids_list, **options):
    """Submits all; each stream samples with its own seed, so that equal bits say something."""
    return [client.submit(ids=ids, seed=number, temperature=0.8 if number % 2 else 0.0, **{**LONG, **options})
            for number, ids in enumerate(ids_list)]  # fmt: skip


def outcomes(streams):
    return [(s.result.ids, s.result.logprobs) for s in streams]


class SlowCluster(harness.Cluster):
    """Its requests still run when something happens to them."""

    def __init__(self, model, ranks, *arguments):
        super().__init__(model, ranks, arguments=(*harness.SLOW_STEPS, *arguments))


class Faults(unittest.TestCase):
    def setUp(self):
        self.model = harness.tiny_model("--type", "Q4_1")

    def undisturbed(self, ids_list):
        with harness.Cluster(self.model, ranks=1) as cluster, cluster.client() as client:
            return outcomes(streams_of(client, ids_list))

    def test_a_killed_decode_rank_costs_a_pause_and_never_a_token(self):
        ids_list = prompts(12, seed=1)
        expected = self.undisturbed(ids_list)
        with SlowCluster(self.model, 4, "--prefill-ranks", "1") as cluster:
            with cluster.client() as client:
                streams = streams_of(client, ids_list)
                first = [s.next() for s in streams]
                self.assertTrue(all(first))
                cluster.kill_rank(2)
                self.assertEqual(outcomes(streams), expected)
                moved = sum(s.result.usage.attempts for s in streams)
                self.assertGreater(moved, 0, "the killed rank held no request: the test shows nothing")
                harness.wait_for(lambda: harness.idle(client.status()), 5, "all slots and blocks free")
                dead = [w.rank for w in client.status().workers if not w.alive]
                self.assertIn(dead, ([], [2]))  # forgotten or shown as dead

    def test_a_killed_prefill_rank_loses_nothing(self):
        ids_list = prompts(40, seed=2)
        expected = self.undisturbed(ids_list)
        with SlowCluster(self.model, 4, "--prefill-ranks", "2") as cluster:
            with cluster.client() as client:
                streams = streams_of(client, ids_list)
                self.assertTrue(streams[0].next())
                cluster.kill_rank(1)
                self.assertEqual(outcomes(streams), expected)
                harness.wait_for(lambda: harness.idle(client.status()), 10, "all slots and blocks free")

    def test_a_stopped_decode_rank_is_fenced_and_comes_back(self):
        ids_list = prompts(8, seed=3)
        expected = self.undisturbed(ids_list)
        with SlowCluster(self.model, 4, "--prefill-ranks", "1") as cluster:
            with cluster.client() as client:
                streams = streams_of(client, ids_list)
                self.assertTrue(all(s.next() for s in streams))
                cluster.kill_rank(3, signal.SIGSTOP)
                self.assertEqual(outcomes(streams), expected)
                cluster.kill_rank(3, signal.SIGCONT)
                both = lambda: sum(w.alive for w in client.status().workers if w.role == "decode") == 2
                harness.wait_for(both, 15, "the stopped rank is back")
                again = streams_of(client, ids_list)
                self.assertEqual(outcomes(again), expected)
                harness.wait_for(lambda: harness.idle(client.status()), 5, "all slots and blocks free")

    def test_a_client_that_vanishes_frees_its_slot_and_blocks_within_a_second(self):
        script = (
            "import sys, time; sys.path.insert(0, sys.argv[2])\n"
            "from baton_client import Client\n"
            "stream = Client(sys.argv[1]).submit(ids=[5, 6, 7], max_tokens=480, ignore_eos=True, stop_ids=[])\n"
            "stream.next(); print('running', flush=True); time.sleep(60)\n"
        )
        with SlowCluster(self.model, 3) as cluster:
            with cluster.client() as watcher:
                arguments = [sys.executable, "-c", script, cluster.endpoint, str(harness.ROOT / "launch/python")]
                child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
                self.assertEqual(child.stdout.readline().strip(), b"running")
                self.assertFalse(harness.idle(watcher.status()))
                child.kill()
                child.wait()
                child.stdout.close()
                took = harness.wait_for(lambda: harness.idle(watcher.status()), 3, "slot and blocks free")
                print(f"free after {took:.2f} s", file=sys.stderr)
                self.assertLess(took, 2.0)  # promised: 1 s; a loaded test machine gets another

    def test_two_hundred_requests_a_third_cancelled_at_random_moments(self):
        draw = random.Random(4)
        ids_list = prompts(200, seed=5)
        with SlowCluster(self.model, 4) as cluster, cluster.client() as client:
            streams = [client.submit(ids=ids, max_tokens=draw.randrange(1, 120), ignore_eos=True)
                       for ids in ids_list]  # fmt: skip
            doomed = [s for s in streams if draw.random() < 0.34]
            timers = [threading.Timer(draw.random() * 1.5, s.cancel) for s in doomed]
            for timer in timers:
                timer.start()
            ended = cancelled = 0
            for stream in streams:
                try:
                    cancelled += stream.result.finish == "cancelled"
                except Exception as error:  # noqa: BLE001
                    self.assertEqual(getattr(error, "code", ""), "cancelled", str(error))
                    cancelled += 1
                ended += 1
            for timer in timers:
                timer.join()
            self.assertEqual(ended, 200)
            self.assertLessEqual(cancelled, len(doomed))
            harness.wait_for(lambda: harness.idle(client.status()), 5, "all slots and blocks free")

    def test_sigterm_finishes_what_runs_and_then_ends_every_rank(self):
        with SlowCluster(self.model, 3) as cluster, cluster.client() as client:
            pids = [cluster.rank_pid(rank) for rank in range(3)]
            stream = client.submit(ids=[5, 6, 7], max_tokens=300, ignore_eos=True)
            self.assertTrue(stream.next())
            os.kill(cluster.control_pid, signal.SIGTERM)
            self.assertEqual(len(stream.result.ids), 300)
            harness.wait_for(lambda: not any(map(harness.alive, pids)), 10, "every rank has left")
            self.assertEqual(cluster.process.wait(10), 0)

    def test_no_rank_outlives_the_control_rank(self):
        with harness.Cluster(self.model, ranks=3) as cluster:
            pids = [cluster.rank_pid(rank) for rank in (1, 2)]
            cluster.kill_rank(0)
            harness.wait_for(lambda: not any(map(harness.alive, pids)), 8, "the workers have left")

    def test_no_rank_outlives_mpirun(self):
        with harness.Cluster(self.model, ranks=3) as cluster:
            pids = [cluster.rank_pid(rank) for rank in range(3)]
            cluster.process.kill()
            harness.wait_for(lambda: not any(map(harness.alive, pids)), 5, "all ranks have left")

    def test_the_last_decode_rank_dies_and_requests_are_told(self):
        with SlowCluster(self.model, 3) as cluster, cluster.client() as client:
            stream = client.submit(ids=[5, 6, 7], max_tokens=480, ignore_eos=True, deadline_ms=4000)
            self.assertTrue(stream.next())
            cluster.kill_rank(2)
            with self.assertRaises(harness.BatonError) as caught:
                stream.result
            self.assertIn(caught.exception.code, ("worker_lost", "deadline_exceeded"))
            with self.assertRaises(harness.BatonError) as caught:
                client.submit(ids=[5, 6, 7], max_tokens=4, deadline_ms=12_000).result
            self.assertIn(caught.exception.code, ("unavailable", "worker_lost", "deadline_exceeded"))
            self.assertGreater(len(caught.exception.text), 15)


if __name__ == "__main__":
    unittest.main()
