"""The same bits, prompt log-probabilities included: disaggregated, alone, batch of one, packed, any instruction set, any threads."""

import unittest

import harness

PROMPTS = [
    [401],
    [222, 43, 242, 271, 462],
    [(7 * i + 3) % 509 + 3 for i in range(33)],
    [(11 * i + 5) % 509 + 3 for i in range(64)],
    [(13 * i + 1) % 509 + 3 for i in range(100)],
    [(17 * i + 2) % 509 + 3 for i in range(200)],
]


def requests(new):
    for number, ids in enumerate(PROMPTS):
        yield dict(ids=ids, max_tokens=new, ignore_eos=True, top_logprobs=2, prompt_logprobs=1)
        yield dict(ids=ids, max_tokens=new, ignore_eos=True, top_logprobs=0, temperature=0.9, top_k=50,
                   top_p=0.95, seed=number, repetition_penalty=1.1)  # fmt: skip


def outcome(result):
    return (result.ids, result.logprobs, result.top, result.prompt_logprobs, result.prompt_top, result.text)


def together(client, new):
    """All requests at once: packed prefill, batched decode."""
    streams = [client.submit(**r) for r in requests(new)]
    return [outcome(s.result) for s in streams]


def one_by_one(client, new):
    return [outcome(client.submit(**r).result) for r in requests(new)]


class Equality(unittest.TestCase):
    def compare(self, model, new, variants):
        expected = None
        for name, options in variants:
            with self.subTest(name), harness.Cluster(model, **options) as cluster, cluster.client() as client:
                first = together(client, new)
                expected = expected or first
                self.assertEqual(first, expected, "together differs")
                self.assertEqual(one_by_one(client, new), expected, "one by one differs")
                self.assertTrue(any(logprobs for _, logprobs, *_ in first))

    def test_T50_T55_tiny_model_in_every_arrangement(self):
        variants = [
            ("alone, 1 thread", dict(ranks=1, arguments=("--threads", "1"))),
            ("alone, 2 threads", dict(ranks=1, arguments=("--threads", "2"))),
            ("scalar", dict(ranks=1, environment={"BATON_ISA": "scalar"})),
            ("mpirun -np 3", dict(ranks=3)),
            ("mpirun -np 4, blocks of 32", dict(ranks=4, arguments=("--block-size", "32"))),
            ("small steps", dict(ranks=3, arguments=("--max-num-batched-tokens", "48"))),
        ]
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
            flags = cpuinfo.read()
        if " avx2" in flags:
            variants.append(("avx2", dict(ranks=1, environment={"BATON_ISA": "avx2"})))
        self.compare(harness.tiny_model("--type", "Q4_1"), 24, variants)

    def test_exact_path_of_the_tiny_model(self):
        arguments = ("--activations", "f32")
        variants = [
            ("alone", dict(ranks=1, arguments=arguments)),
            ("mpirun -np 3", dict(ranks=3, arguments=arguments)),
        ]
        self.compare(harness.tiny_model(), 16, variants)

    @unittest.skipUnless(harness.REAL_MODEL, "the real model is neither cached nor to be fetched")
    def test_T50_real_model_alone_and_disaggregated(self):
        variants = [
            ("alone", dict(ranks=1)),
            ("mpirun -np 3", dict(ranks=3)),
            ("mpirun -np 4", dict(ranks=4)),
        ]
        self.compare(harness.REAL_MODEL, 16, variants)


if __name__ == "__main__":
    unittest.main()
