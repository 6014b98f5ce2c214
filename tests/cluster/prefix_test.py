"""Prefix caches on both sides, and prompts that a decode rank computes itself: never a different answer."""

import unittest

import harness
from with_cluster import prompt

COMMON = prompt(1, 200)  # beginnings that requests share
LENGTHS = (1, 15, 16, 17, 33, 64, 100, 199)


def requests():
    """Each a beginning of its own length and a tail: no, partial and full hits when asked again."""
    for number, length in enumerate(LENGTHS):
        ids = COMMON[:length] + prompt(100 + number, number % 5)
        yield dict(ids=ids, max_tokens=20, ignore_eos=True, top_logprobs=1)
        yield dict(ids=ids, max_tokens=20, ignore_eos=True, top_logprobs=0, temperature=0.8, top_p=0.9,
                   seed=number, presence_penalty=0.3)  # fmt: skip


def outcome(result):
    return (result.ids, result.logprobs, result.top, result.prompt_logprobs, result.text)


def one_by_one(client):
    return [outcome(client.submit(**r).result) for r in requests()]


def together(client):
    streams = [client.submit(**r) for r in requests()]
    return [outcome(s.result) for s in streams]


def counters(client):
    """What the scheduler counts, and what the workers do, by role: `decode_cache_hit`."""
    status = client.status()
    found = dict(status.counters)
    for worker in status.workers:
        for name, value in worker.counters.items():
            found[f"{worker.role}_{name}"] = found.get(f"{worker.role}_{name}", 0) + value
    return found


class Equality(unittest.TestCase):
    def test_T44_T46_T47_T50_hit_miss_partial_and_local_give_the_same_bits(self):
        model = harness.tiny_model("--type", "Q4_1", "--context", "1024")
        variants = [
            ("no cache", 3, ("--no-prefix-cache", "--local-prefill-tokens", "0")),
            ("no cache, small steps", 3, ("--no-prefix-cache", "--max-num-batched-tokens", "48")),
            ("cache", 3, ("--local-prefill-tokens", "0")),
            ("cache, blocks of 64", 3, ("--block-size", "64", "--local-prefill-tokens", "0")),
            ("cache, small steps, packed by tokens", 3,
             ("--max-num-batched-tokens", "48", "--pack-policy", "token_budget")),
            ("cache in one process", 1, ()),
            ("cache and short prompts local", 3, ("--local-prefill-tokens", "40")),
            ("everything local", 4, ("--local-prefill-tokens", "5000")),
            ("no cache, everything local", 3, ("--no-prefix-cache", "--local-prefill-tokens", "5000")),
        ]  # fmt: skip
        expected = None
        for name, ranks, arguments in variants:
            with self.subTest(name), harness.Cluster(model, ranks, arguments) as cluster:
                with cluster.client() as client:
                    first = together(client)
                    expected = expected or first
                    self.assertEqual(first, expected, "together differs")
                    self.assertEqual(one_by_one(client), expected, "one by one differs")
                    self.assertEqual(together(client), expected, "together again differs")
                    harness.wait_for(lambda: harness.idle(client.status()), 10, "all is free again")
                    found = harness.wait_for_value(lambda: counters(client), 2)
                    hits = found["prefill_cache_hit"] + found["decode_cache_hit"]
                    self.assertEqual(hits > 0, "--no-prefix-cache" not in arguments)
                    if "5000" in arguments:
                        self.assertEqual(found["local_prefills"], found["admitted"])
                    if arguments[-1:] == ("0",):
                        self.assertEqual(found["local_prefills"], 0)

    def test_scores_of_a_prompt_do_not_depend_on_what_is_cached(self):
        model = harness.tiny_model("--context", "1024")
        asked = dict(ids=COMMON[:70], max_tokens=4, ignore_eos=True, top_logprobs=1, prompt_logprobs=1)
        plain = dict(asked, prompt_logprobs=-1)
        answers = []
        for arguments in ((), ("--no-prefix-cache",), ("--local-prefill-tokens", "5000")):
            with harness.Cluster(model, 3, arguments) as cluster, cluster.client() as client:
                first = outcome(client.submit(**asked).result)
                client.submit(**plain).result
                self.assertEqual(outcome(client.submit(**asked).result), first)
                answers.append(first)
        self.assertEqual(answers[1:], answers[:-1])
        self.assertEqual(len(answers[0][3]), 70)


class Use(unittest.TestCase):
    def test_a_conversation_is_not_computed_again_with_each_turn(self):
        model = harness.tiny_model("--context", "1024")
        arguments = ("--local-prefill-tokens", "0", "--block-size", "16")
        with harness.Cluster(model, 3, arguments) as cluster, cluster.client() as client:
            ids = list(COMMON[:100])
            cached = []
            for turn in range(4):
                result = client.submit(ids=ids, max_tokens=30, ignore_eos=True).result
                cached.append(result.usage.cached_tokens)
                ids += list(result.ids) + prompt(turn, 10)
            self.assertEqual(cached[0], 0)
            # Of each turn's prompt, what the turn before had computed at prefill.
            self.assertEqual(cached[1:], [96, 128, 176])
            found = harness.wait_for_value(lambda: counters(client), 2)
            # And the decode side keeps the output too: nearly all of each prompt is there.
            self.assertGreaterEqual(found["decode_cache_hit"], 128 + 160 + 208)

    def test_tenants_do_not_share(self):
        model = harness.tiny_model("--context", "1024")
        with harness.Cluster(model, 3, ("--local-prefill-tokens", "0")) as cluster, cluster.client() as client:
            ask = dict(ids=COMMON[:100], max_tokens=3, ignore_eos=True)
            used = [client.submit(**ask, tenant=t).result.usage.cached_tokens for t in ("a", "b", "a", "b")]
            self.assertEqual(used, [0, 0, 96, 96])

    def test_T81_a_cluster_whose_prefill_rank_has_died_serves_on_and_says_how(self):
        model = harness.tiny_model("--context", "1024")
        ask = dict(ids=COMMON[:150], max_tokens=10, ignore_eos=True, top_logprobs=0)
        with harness.Cluster(model, 3, ("--local-prefill-tokens", "auto")) as cluster, cluster.client() as client:
            first = client.submit(**ask).result
            self.assertEqual(first.usage.prefill_rank, 1)
            cluster.kill_rank(1)
            harness.wait_for(lambda: any(not w.alive for w in client.status().workers), 10, "the death is known")
            again = client.submit(**ask).result
            self.assertEqual(outcome(again), outcome(first))
            self.assertEqual(again.usage.prefill_rank, 2)
            self.assertEqual(counters(client)["local_prefills"], 1)

    def test_T76_T79_more_sequences_than_the_pools_hold_all_end_right(self):
        model = harness.tiny_model("--context", "512")
        asks = [dict(ids=COMMON[: 20 + 7 * i] + prompt(i, 9), max_tokens=120, ignore_eos=True, top_logprobs=0)
                for i in range(24)]  # fmt: skip
        with harness.Cluster(model, 1) as cluster, cluster.client() as client:
            expected = [outcome(client.submit(**a).result) for a in asks]
        preemptions = 0
        for local in ("0", "auto", "5000"):
            arguments = ("--kv-cache-memory", "512KiB", "--local-prefill-tokens", local)
            with self.subTest(local), harness.Cluster(model, 3, arguments) as cluster, cluster.client() as client:
                streams = [client.submit(**a) for a in asks]
                self.assertEqual([outcome(s.result) for s in streams], expected)
                preemptions += counters(client)["preemptions"]
                harness.wait_for(lambda: harness.idle(client.status()), 10, "all is free again")
        self.assertGreater(preemptions, 0)


if __name__ == "__main__":
    unittest.main()
