"""Several samples per request: the same bits however many there are, with whom they share a batch, after a death, on too small
a pool, through every client; jobs of many requests; and how often decode looks at what it decoded."""

import asyncio
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness
from baton_client import AsyncClient, BatonError, Request
from with_cluster import WithCluster, prompt

HOT = dict(temperature=0.9, top_k=60, top_p=0.97, top_logprobs=2)


def hot(number, n, **options):
    """A request that ends after 24 to 56 tokens, or at one of the model's own ends."""
    fields = dict(HOT, ids=prompt(number, 5 + 7 * number % 90), seed=1000 + number, max_tokens=24 + 8 * (number % 5), n=n)
    return {**fields, **options}


def choices_of(result):
    return [(c.ids, c.logprobs, c.top, c.text, c.finish) for c in result.choices]


def joined(parts, n):
    """What the stream of each choice brought, put together like results."""
    return [
        (
            [x for p in parts if p.choice == c for x in p.ids],
            [x for p in parts if p.choice == c for x in p.logprobs],
            "".join(p.text for p in parts if p.choice == c),
        )
        for c in range(n)
    ]


class Samples(WithCluster):
    ranks = 3

    def test_T60_a_choice_is_the_same_whatever_n_is(self):
        with self.cluster.client() as client:
            for number in range(6):
                four = choices_of(client.submit(**hot(number, 4)).result)
                self.assertEqual(len(four), 4)
                self.assertGreater(len({tuple(ids) for ids, *_ in four}), 1, "all choices are the same")
                for n in (1, 2, 3):
                    self.assertEqual(choices_of(client.submit(**hot(number, n)).result), four[:n])
            self.wait_idle(client)

    def test_T49_alone_and_in_a_batch_of_32(self):
        with self.cluster.client() as client:
            alone = [choices_of(client.submit(**hot(number, 4)).result) for number in range(8)]
            streams = [client.submit(**hot(number, 4)) for number in range(8)]
            self.assertEqual([choices_of(s.result) for s in streams], alone)
            mixed = [client.submit(**hot(number, 1 + number % 4)) for number in range(16)]
            for number, stream in enumerate(mixed[:8]):
                self.assertEqual(choices_of(stream.result), alone[number][: 1 + number % 4])

    def test_parts_name_their_choice_and_join_to_its_result(self):
        with self.cluster.client() as client:
            stream = client.submit(**hot(3, 4))
            parts = list(stream)
            expected = [(ids, logprobs, text) for ids, logprobs, _, text, _ in choices_of(stream.result)]
            self.assertEqual(joined(parts, 4), expected)
            self.assertEqual(stream.result.text, stream.result.choices[0].text)
            tokens = sum(len(c.ids) for c in stream.result.choices)
            self.assertEqual(stream.result.usage.completion_tokens, tokens)

    def test_greedy_choices_are_equal_and_allowed(self):
        with self.cluster.client() as client:
            result = client.submit(ids=prompt(1), max_tokens=12, n=3).result
            self.assertEqual(len({tuple(c.ids) for c in result.choices}), 1)

    def test_T52_T54_T55_log_probabilities_are_complete_with_several_choices(self):
        with self.cluster.client() as client:
            one = client.submit(**hot(2, 1, prompt_logprobs=2)).result
            four = client.submit(**hot(2, 4, prompt_logprobs=2)).result
            self.assertEqual(one.prompt_logprobs, four.prompt_logprobs)
            self.assertEqual(one.prompt_top, four.prompt_top)
            self.assertIsNone(four.prompt_logprobs[0])
            for choice in four.choices:
                self.assertEqual(len(choice.logprobs), len(choice.ids))
                self.assertEqual(len(choice.top), len(choice.ids))

    def test_T56_T86_choices_that_end_with_the_first_token_or_before(self):
        with self.cluster.client() as client:
            first = client.submit(**hot(4, 4, max_tokens=1)).result
            self.assertEqual([len(c.ids) for c in first.choices], [1] * 4)
            stop = first.choices[1].ids
            result = client.submit(**hot(4, 4, stop_ids=stop)).result
            self.assertEqual((result.choices[1].ids, result.choices[1].finish), (stop, "stop"))
            self.assertGreater(max(len(c.ids) for c in result.choices), 1)
            none = client.submit(ids=prompt(4), max_tokens=0, prompt_logprobs=0, n=2).result
            self.assertEqual([c.ids for c in none.choices], [[], []])
            self.wait_idle(client)

    def test_stop_strings_end_one_choice_and_not_the_others(self):
        with self.cluster.client() as client:
            whole = client.submit(**hot(5, 4)).result
            text = next(c.text for c in whole.choices if len(c.text) > 8)
            stop = text[3:6]
            result = client.submit(**hot(5, 4, stop=[stop])).result
            for choice, full in zip(result.choices, whole.choices):
                if stop in full.text:
                    self.assertEqual((choice.text, choice.finish), (full.text.split(stop)[0], "stop"))
                else:
                    self.assertEqual(choice.ids, full.ids)
            self.wait_idle(client)

    def test_n_beyond_the_slots_is_refused_with_both_numbers(self):
        with self.cluster.client() as client:
            error = self.refusal("invalid_argument", lambda: client.submit(ids=prompt(1), n=33, max_tokens=4).result)
            self.assertIn("n is 33", error.text)
            self.assertIn("32 slots", error.text)
            error = self.refusal("invalid_argument", lambda: client.submit(ids=prompt(1), n=129, max_tokens=4).result)
            self.assertIn("1 to 128", error.text)

    def test_cancelling_ends_every_choice(self):
        with self.cluster.client() as client:
            stream = client.submit(**hot(6, 8, max_tokens=1500, ignore_eos=True))
            self.assertTrue(stream.next(5))
            stream.cancel()
            self.refusal("cancelled", lambda: stream.result)
            self.wait_idle(client)

    def test_every_client_gets_the_same_choices(self):
        requests = [hot(number, 1 + number % 4) for number in range(12)]
        with self.cluster.client() as client:
            expected = [choices_of(client.submit(**r).result) for r in requests]

        async def through_asyncio():
            async with AsyncClient(self.cluster.endpoint) as client:
                streams = [await client.submit(**r) for r in requests]
                return [choices_of(await s.wait()) for s in streams]

        self.assertEqual(asyncio.run(through_asyncio()), expected)
        self.assertEqual(self.through_batch(requests), [[(c[0], c[1], c[3], c[4]) for c in r] for r in expected])

    def test_the_command_line_labels_choices(self):
        def submit(*words):
            command = [harness.BATON, "submit", "-e", self.cluster.endpoint, "-m", "12", "--ignore-eos", "-t", "1",
                       "--seed", "3", *words]  # fmt: skip
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        one = submit("-n", "3", "--table", "Hello")
        self.assertEqual(one.returncode, 0, one.stderr)
        for choice in range(3):
            self.assertIn(f"[{choice}] ", one.stdout)
        self.assertRegex(one.stdout, r"\b36\b.*length, length, length")
        two = submit("-n", "2", "Hello", "Goodbye")
        for tag in ("[1.0] ", "[1.1] ", "[2.0] ", "[2.1] "):
            self.assertIn(tag, two.stdout)
        self.assertEqual(submit("-n", "0", "Hello").returncode, 64)

    def through_batch(self, requests):
        """The C++ client: ids, log-probabilities, text and finish of each choice."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "in", Path(folder) / "out"
            lines = [dict(r, id=f"r{i}", group="even" if i % 2 == 0 else "odd") for i, r in enumerate(requests)]
            for line in lines:
                line["prompt_ids"] = line.pop("ids")
            source.write_text("".join(json.dumps(line) + "\n" for line in lines))
            done = subprocess.run([harness.BATON, "batch", str(source), str(target), "-e", self.cluster.endpoint],
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("group even: 6 requests, 0 errors", done.stderr)
            results = [json.loads(line) for line in target.read_text().splitlines()]
        self.assertEqual([r["id"] for r in results], [line["id"] for line in lines])
        self.assertEqual([r["group"] for r in results], [line["group"] for line in lines])
        self.assertEqual([r["prompt_ids"] for r in results], [line["prompt_ids"] for line in lines])
        single = [float32(x) for r in results for c in r.get("choices", [r]) for x in c["logprobs"]]
        every = iter(single)
        return [
            [(c["ids"], [next(every) for _ in c["logprobs"]], c["text"], c["finish"]) for c in r.get("choices", [r])]
            for r in results
        ]


def float32(number):
    """As the wire carries it."""
    import struct

    return struct.unpack("f", struct.pack("f", number))[0]


class Jobs(WithCluster):
    ranks = 1
    arguments = ("--max-queued", "2", "--max-num-seqs", "4")

    def requests(self, count):
        return [Request(**hot(number, 1 + number % 3), id=f"q{number}", group="job") for number in range(count)]

    def test_S5_T62_a_job_yields_every_request_once_in_order_or_as_they_end(self):
        requests = self.requests(30)
        with self.cluster.client() as client:
            expected = [choices_of(client.submit(r).result) for r in requests]
            ordered = list(client.run_all(requests, ordered=True))
            self.assertEqual([f.id for f in ordered], [r.id for r in requests])
            self.assertEqual([choices_of(f.result) for f in ordered], expected)
            free = list(client.run_all(requests, outstanding=5))
            self.assertEqual(sorted(f.index for f in free), list(range(30)))
            for f in free:
                self.assertEqual(choices_of(f.result), expected[f.index])
            refused = client.status().counters["refused"]
            self.assertGreater(refused, 0, "nothing was refused as busy: the queue was never full")
            self.wait_idle(client)

    def test_asyncio_runs_a_job_too(self):
        requests = self.requests(12)

        async def run():
            async with AsyncClient(self.cluster.endpoint) as client:
                return [f async for f in client.run_all(requests, ordered=True)]

        finished = asyncio.run(run())
        self.assertEqual([f.index for f in finished], list(range(12)))
        self.assertTrue(all(f.error is None for f in finished))

    def test_T62_equal_ids_are_refused_before_anything_is_sent(self):
        requests = [*self.requests(3), Request(ids=[5], id="q1")]
        with self.cluster.client() as client:
            before = client.status().counters["submitted"]
            with self.assertRaises(BatonError) as caught:
                client.run_all(requests)
            self.assertEqual(caught.exception.code, "conflict")
            self.assertIn("'q1'", caught.exception.text)
            self.assertEqual(client.status().counters["submitted"], before)

    def test_a_faulty_request_ends_with_its_error_and_the_others_go_on(self):
        requests = self.requests(4)
        requests[2].top_p = 7
        with self.cluster.client() as client:
            finished = list(client.run_all(requests, ordered=True))
            self.assertEqual([f.error.code if f.error else None for f in finished],
                             [None, None, "invalid_argument", None])  # fmt: skip

    def test_leaving_a_job_cancels_what_is_under_way(self):
        requests = [Request(**hot(n, 1, max_tokens=1900, ignore_eos=True)) for n in range(3)]
        requests.append(Request(ids=prompt(9), max_tokens=2))
        with self.cluster.client() as client:
            for finished in client.run_all(requests):
                self.assertEqual(finished.index, 3)
                break
            self.wait_idle(client)


class Faults(unittest.TestCase):
    def setUp(self):
        self.model = harness.tiny_model("--type", "Q4_1")

    def undisturbed(self, requests):
        with harness.Cluster(self.model, ranks=1) as cluster, cluster.client() as client:
            return [choices_of(s.result) for s in [client.submit(**r) for r in requests]]

    def test_T64_T65_a_killed_decode_rank_costs_no_choice_a_token(self):
        requests = [hot(number, 1 + number % 4, max_tokens=200) for number in range(8)]
        expected = self.undisturbed(requests)
        arguments = (*harness.SLOW_STEPS, "--prefill-ranks", "1")
        with harness.Cluster(self.model, 4, arguments=arguments) as cluster, cluster.client() as client:
            streams = [client.submit(**r) for r in requests]
            self.assertTrue(all([s.next(20) for s in streams]))
            cluster.kill_rank(2)
            self.assertEqual([choices_of(s.result) for s in streams], expected)
            several = [s.result.usage.attempts for s, r in zip(streams, requests) if r["n"] > 1]
            self.assertGreater(sum(several), 0, "the killed rank held no request of several choices")
            harness.wait_for(lambda: harness.idle(client.status()), 10, "all slots and blocks free")

    def test_T76_T80_preempted_choices_have_the_same_bits(self):
        requests = [hot(number, 1 + number % 4, max_tokens=150, ignore_eos=True) for number in range(8)]
        expected = self.undisturbed(requests)
        arguments = ("--kv-cache-memory", self.memory_of(blocks=24))
        with harness.Cluster(self.model, 3, arguments=arguments) as cluster, cluster.client() as client:
            streams = [client.submit(**r) for r in requests]
            self.assertEqual([choices_of(s.result) for s in streams], expected)
            self.assertGreater(client.status().counters["preemptions"], 0, "the pool was large enough")
            harness.wait_for(lambda: harness.idle(client.status()), 10, "all slots and blocks free")

    def memory_of(self, blocks):
        with harness.Cluster(self.model, 1, arguments=("--kv-cache-memory", "16MiB")) as cluster, cluster.client() as client:
            return str((16 << 20) // client.status().workers[0].blocks * blocks)

    def test_S8_looking_every_few_steps_gives_the_same_tokens(self):
        requests = [hot(number, 1 + number % 3) for number in range(8)]
        expected = self.undisturbed(requests)
        for every in ("4", "10"):
            with self.subTest(every), harness.Cluster(self.model, 3, arguments=("--min-decode-steps", every)) as cluster:
                with cluster.client() as client:
                    results = [s.result for s in [client.submit(**r) for r in requests]]
                    self.assertEqual([choices_of(r) for r in results], expected)
                    for result in results:
                        tokens = sum(len(c.ids) for c in result.choices)
                        self.assertEqual(result.usage.completion_tokens, tokens)

    def test_catching_up_in_small_chunks_has_the_same_bits(self):
        requests = [hot(number, 3, max_tokens=120) for number in range(4)]
        expected = self.undisturbed(requests)
        arguments = (*harness.SLOW_STEPS, "--prefill-ranks", "1", "--catch-up-tokens", "3")
        with harness.Cluster(self.model, 4, arguments=arguments) as cluster, cluster.client() as client:
            streams = [client.submit(**r) for r in requests]
            self.assertTrue(all([s.next(20) for s in streams]))
            cluster.kill_rank(3)
            self.assertEqual([choices_of(s.result) for s in streams], expected)


if __name__ == "__main__":
    unittest.main()
