"""Other weights in a running cluster: nothing is lost, and every result is that of its versions."""

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import harness

SHAPE = ("--type", "Q4_1")
REQUESTS = 1000
SLOW = ("--prefill-ranks", "1", "--min-step-us", "12000")  # so that requests run when something happens
POLICIES = ("finish", "continue", "abort", "continue", "finish")


def model_of(version):
    """Version 1 is the model that the cluster starts with; each has random numbers of its own."""
    return harness.tiny_model(*SHAPE) if version == 1 else harness.tiny_model(*SHAPE, "--seed", str(version))


def draw_requests(count, seed):
    draw = random.Random(seed)
    return [
        dict(ids=[draw.randrange(3, 512) for _ in range(draw.randrange(4, 40))], seed=number, ignore_eos=True,
             max_tokens=draw.randrange(2, 40), temperature=0.8 if number % 2 else 0.0, top_logprobs=0)
        for number in range(count)
    ]  # fmt: skip


class Stretches:
    """What results claim, version by version, to be held against servers that have only that one."""

    def __init__(self):
        self.by_version = {}

    def add(self, request, result):
        """Each span is a request of its own: the prompt and what came before, on one version."""
        spans = result.usage.weights
        assert spans and spans[0].from_token == 0 and spans[-1].version == result.usage.weights_version
        for number, span in enumerate(spans):
            end = spans[number + 1].from_token if number + 1 < len(spans) else len(result.ids)
            alone = dict(request)
            alone["ids"] = request["ids"] + result.ids[: span.from_token]
            alone["max_tokens"] = end - span.from_token
            expected = (result.ids[span.from_token : end], result.logprobs[span.from_token : end])
            self.by_version.setdefault(span.version, []).append((alone, expected))

    def check(self, test):
        for version, stretches in sorted(self.by_version.items()):
            with harness.Cluster(model_of(version), ranks=1) as cluster, cluster.client() as client:
                streams = [client.submit(**request) for request, _ in stretches]
                for stream, (_, expected) in zip(streams, stretches):
                    test.assertEqual((stream.result.ids, stream.result.logprobs), expected, f"version {version}")


class Load:
    """Keeps a cluster busy from a thread; what an update ends is submitted again."""

    def __init__(self, client, requests, under_way=48):
        self.done, self.aborted, self.faults = [], 0, []
        self._requests, self._under_way = requests, under_way
        self._client = client
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        waiting, running = list(reversed(self._requests)), []
        while waiting or running:
            while waiting and len(running) < self._under_way:
                request = waiting.pop()
                running.append((request, self._client.submit(**request)))
            request, stream = running.pop(0)
            try:
                self.done.append((request, stream.result))
            except harness.BatonError as error:
                if error.code == "unavailable" and "weights were replaced" in error.text:
                    self.aborted += 1
                    waiting.append(request)
                else:
                    self.faults.append(str(error))

    def wait_for(self, count):
        harness.wait_for(lambda: len(self.done) >= count or self.faults, 60, f"{count} results")

    def join(self):
        self._thread.join(120)
        return not self._thread.is_alive()


def update(client, path, **options):
    return client.update_weights(path, timeout=60, **options)


class Weights(unittest.TestCase):
    def assert_served(self, client, version):
        status = client.status()
        self.assertEqual(status.weights_version, version)
        self.assertTrue(all(w.weights == [version] for w in status.workers if w.alive), status.workers)

    def test_a_thousand_requests_through_five_updates_lose_nothing_and_equal_their_versions(self):
        with harness.Cluster(model_of(1), ranks=4, arguments=SLOW) as cluster:
            with cluster.client() as client, cluster.client() as operator:
                load = Load(client, draw_requests(REQUESTS, seed=1))
                for number, policy in enumerate(POLICIES):
                    load.wait_for((number + 1) * REQUESTS // (len(POLICIES) + 1))
                    seen = []
                    outcome = update(operator, model_of(number + 2), policy=policy, wait_retired=True,
                                     progress=lambda p: seen.append(p.phase))  # fmt: skip
                    self.assertEqual((outcome.version, outcome.workers), (number + 2, 3))
                    self.assertIn("preparing", seen)
                self.assertTrue(load.join())
                self.assertEqual(load.faults, [])
                self.assertEqual(len(load.done), REQUESTS)
                self.assert_served(operator, len(POLICIES) + 1)
                harness.wait_for(lambda: harness.idle(operator.status()), 5, "all slots and blocks free")
                counters = operator.status().counters
                self.assertEqual(counters["weights_committed"], 5)
                self.assertEqual(counters["weights_dropped"], 15)
                self.assertEqual(counters["weight_plans_reused"], 12)  # all but the first of each rank
        stretches = Stretches()
        for request, result in load.done:
            stretches.add(request, result)
        mixed = sum(len(result.usage.weights) > 1 for _, result in load.done)
        versions = {version: len(all_of) for version, all_of in sorted(stretches.by_version.items())}
        print(f"stretches by version: {versions}; {mixed} results of two versions; {load.aborted} aborted")
        self.assertEqual(sorted(versions), [1, 2, 3, 4, 5, 6])
        self.assertGreater(mixed, 0, "no request went on with other weights: the test shows nothing")
        self.assertGreater(load.aborted, 0, "no request was aborted: the test shows nothing")
        stretches.check(self)

    def test_T99_bad_files_change_nothing_and_say_why(self):
        good = Path(model_of(2)).read_bytes()
        files = {
            "empty": (b"", "bad_model", "0 bytes"),
            "cut": (good[: len(good) // 2], "bad_model", "cut.gguf"),
            "magic": (b"XXXX" + good[4:], "bad_model", "magic.gguf"),
            "noise": (good[:-200] + b"\xff" * 200, "bad_model", "not a number"),
        }
        with tempfile.TemporaryDirectory() as folder, harness.Cluster(model_of(1), ranks=3) as cluster:
            with cluster.client() as client:
                request = draw_requests(1, seed=2)[0]
                before = client.submit(**request).result
                cases = [(str(Path(folder) / "missing.gguf"), {}, "not_found", "cannot be opened")]
                for name, (content, code, says) in files.items():
                    path = Path(folder) / f"{name}.gguf"
                    path.write_bytes(content)
                    cases.append((str(path), {}, code, says))
                shape = harness.tiny_model(*SHAPE, "--layers", "3")
                cases.append((shape, {}, "conflict", "number of layers is 3"))
                cases.append((model_of(2), {"sha256": "ab" * 32}, "corrupt", "SHA-256"))
                cases.append((model_of(2), {"version": 1}, "invalid_argument", "not newer"))
                cases.append(("tiny.gguf", {}, "invalid_argument", "absolute path"))
                for path, options, code, says in cases:
                    with self.subTest(path=path, **options):
                        with self.assertRaises(harness.BatonError) as caught:
                            update(client, path, **options)
                        self.assertEqual(caught.exception.code, code, caught.exception.text)
                        self.assertIn(says, caught.exception.text)
                        self.assert_served(client, 1)
                after = client.submit(**request).result
                self.assertEqual((after.ids, after.logprobs), (before.ids, before.logprobs))
                dry = update(client, model_of(2), dry_run=True)
                self.assertEqual(dry.workers, 2)
                self.assert_served(client, 1)
                self.assertNotEqual(update(client, model_of(2), wait_retired=True).digest, 0)
                self.assert_served(client, 2)

    def test_a_decode_rank_that_dies_while_it_prepares_does_not_hold_the_update_up(self):
        with harness.Cluster(model_of(1), ranks=4, arguments=SLOW) as cluster:
            with cluster.client() as client, cluster.client() as operator:
                load = Load(client, draw_requests(120, seed=3))
                load.wait_for(10)
                cluster.kill_rank(3, signal.SIGSTOP)  # it cannot get ready
                killer = threading.Timer(0.7, lambda: cluster.kill_rank(3))
                killer.start()
                outcome = update(operator, model_of(2), policy="continue")
                killer.join()
                self.assertEqual(outcome.version, 2)
                self.assertTrue(load.join())
                self.assertEqual((load.faults, len(load.done)), ([], 120))
                harness.wait_for(lambda: operator.status().update.phase == "idle", 10, "the update is over")
                self.assert_served(operator, 2)
        stretches = Stretches()
        for request, result in load.done:
            stretches.add(request, result)
        stretches.check(self)

    def test_a_decode_rank_that_dies_at_the_commit_loses_nothing(self):
        with harness.Cluster(model_of(1), ranks=4, arguments=SLOW) as cluster:
            with cluster.client() as client, cluster.client() as operator:
                load = Load(client, draw_requests(200, seed=4))
                load.wait_for(20)
                victim = cluster.rank_pid(2)
                killed = []

                def kill(progress):
                    if progress.phase in ("committing", "retiring") and not killed:
                        killed.append(os.kill(victim, signal.SIGKILL))

                update(operator, model_of(2), policy="finish", wait_retired=True, progress=kill)
                self.assertEqual(len(killed), 1)
                self.assertTrue(load.join())
                self.assertEqual((load.faults, len(load.done)), ([], 200))
                self.assert_served(operator, 2)
        stretches = Stretches()
        for request, result in load.done:
            stretches.add(request, result)
        stretches.check(self)

    def test_T96_cached_prompts_of_old_weights_are_never_used_again(self):
        request = dict(ids=list(range(5, 75)), max_tokens=8, ignore_eos=True, top_logprobs=0)
        with harness.Cluster(model_of(1), ranks=3) as cluster, cluster.client() as client:
            asked = []
            for version in (1, 1, 2, 2):
                if version > client.status().weights_version:
                    update(client, model_of(version), policy="continue", wait_retired=True)
                asked.append(client.submit(**request).result)
        cached = [result.usage.cached_tokens > 0 for result in asked]
        self.assertEqual(cached, [False, True, False, True])
        stretches = Stretches()
        for result in asked:
            stretches.add(request, result)
        self.assertEqual(sorted(stretches.by_version), [1, 2])
        stretches.check(self)

    def test_instances_of_two_ranks_change_their_parts_together(self):
        arguments = ("--tensor-parallel-size", "2", *SLOW[2:])
        with harness.Cluster(model_of(1), ranks=5, arguments=arguments) as cluster:
            with cluster.client() as client, cluster.client() as operator:
                load = Load(client, draw_requests(60, seed=5))
                for version, policy in ((2, "continue"), (3, "finish")):
                    load.wait_for(version * 10)
                    update(operator, model_of(version), policy=policy, wait_retired=True)
                with self.assertRaises(harness.BatonError):
                    update(operator, harness.tiny_model(*SHAPE, "--layers", "3"))
                self.assertTrue(load.join())
                self.assertEqual((load.faults, len(load.done)), ([], 60))
                self.assert_served(operator, 3)
        stretches = Stretches()
        for request, result in load.done:
            stretches.add(request, result)
        stretches.check(self)

    def test_T101_a_second_update_is_refused_while_one_runs_and_T97_idle_servers_take_one(self):
        with harness.Cluster(model_of(1), ranks=1) as cluster, cluster.client() as client:
            self.assertEqual(update(client, model_of(2), wait_retired=True).version, 2)  # idle
            self.assert_served(client, 2)
            stream = client.submit(ids=[5, 6, 7], max_tokens=400, ignore_eos=True, top_logprobs=0)
            self.assertTrue(stream.next())
            first = update(client, model_of(3), policy="finish")
            if first.old_requests:
                with self.assertRaises(harness.BatonError) as caught:
                    update(client, model_of(4))
                self.assertEqual(caught.exception.code, "conflict")
                self.assertIn("version 3", caught.exception.text)
            result = stream.result
            self.assertEqual([span.version for span in result.usage.weights], [2])
            harness.wait_for(lambda: client.status().update.phase == "idle", 10, "the update is over")
            self.assertEqual(update(client, model_of(4), version=40).version, 40)

    def test_the_command_line_updates_and_says_how_it_went(self):
        with harness.Cluster(model_of(1), ranks=3) as cluster:
            def run(*arguments):
                command = [harness.BATON, *arguments, "--endpoint", cluster.endpoint]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                return done.returncode, done.stdout, done.stderr

            code, out, _ = run("update-weights", model_of(2), "--dry-run")
            self.assertEqual(code, 0)
            self.assertIn("would work", out)
            code, out, errors = run("update-weights", model_of(2), "--policy", "continue", "--wait", "--json")
            self.assertEqual(code, 0, errors)
            self.assertEqual(json.loads(out)["version"], 2)
            self.assertIn("preparing", errors)
            code, out, _ = run("status")
            self.assertIn("weights:  version 2", out)
            status = json.loads(run("status", "--json")[1])
            self.assertEqual([w["weights"] for w in status["workers"]], [[2], [2]])
            self.assertEqual(run("update-weights", "/nowhere.gguf")[0], 65)
            self.assertEqual(run("update-weights", model_of(3), "--version", "2")[0], 64)
            self.assertEqual(run("update-weights", model_of(3), "--policy", "perhaps")[0], 64)
            code, out, errors = run("update-weights", harness.tiny_model(*SHAPE, "--layers", "3"))
            self.assertEqual(code, 65)
            self.assertIn("number of layers", errors)
            self.assertIn("the update to 3 failed", run("status")[1])

    def test_an_endpoint_that_others_reach_takes_updates_only_where_that_was_allowed(self):
        # An interface by its name: loopback all the same, but the server cannot know that.
        outside = dict(ranks=1, endpoint="tcp://lo:*")
        with harness.Cluster(model_of(1), arguments=("--insecure",), **outside) as cluster:
            with cluster.client() as client:
                with self.assertRaises(harness.BatonError) as caught:
                    update(client, model_of(2))
                self.assertEqual(caught.exception.code, "unsupported")
                self.assertIn("--allow-admin", caught.exception.text)
                self.assert_served(client, 1)
        with harness.Cluster(model_of(1), arguments=("--insecure", "--allow-admin"), **outside) as cluster:
            with cluster.client() as client:
                self.assertEqual(update(client, model_of(2)).version, 2)

    def test_the_asyncio_client_updates_too(self):
        import asyncio

        from baton_client import AsyncClient

        async def main(endpoint):
            phases = []
            async with AsyncClient(endpoint) as client:
                outcome = await client.update_weights(model_of(2), progress=lambda p: phases.append(p.phase))
                with self.assertRaises(harness.BatonError) as caught:
                    await client.update_weights("/nowhere.gguf", timeout=30)
                return outcome, phases, caught.exception.code, await client.status()

        with harness.Cluster(model_of(1), ranks=1) as cluster:
            outcome, phases, code, status = asyncio.run(main(cluster.endpoint))
        self.assertEqual((outcome.version, code, status.weights_version), (2, "not_found", 2))
        self.assertIn("preparing", phases)


if __name__ == "__main__":
    unittest.main()
