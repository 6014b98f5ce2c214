"""What tests of clients share: a cluster for all tests of a class, and prompts."""

import random
import unittest

import harness
from baton_client import BatonError

CONTEXT = 2048


def prompt(number, length=12):
    draw = random.Random(number)
    return [draw.randrange(3, 512) for _ in range(length)]


def outcome(result):
    return result.ids, result.logprobs, result.top, result.text, result.finish


def joined(parts):
    """What a stream brought, put together like a result."""
    lists = [[x for part in parts for x in getattr(part, name)] for name in ("ids", "logprobs", "top")]
    return (*lists, "".join(part.text for part in parts))


class WithCluster(unittest.TestCase):
    ranks = 1
    arguments = ()
    environment = None
    model = ("--context", str(CONTEXT))

    @classmethod
    def setUpClass(cls):
        model = harness.tiny_model(*cls.model)
        cls.cluster = harness.Cluster(model, cls.ranks, cls.arguments, cls.environment).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def wait_idle(self, client, seconds=10):
        return harness.wait_for(lambda: harness.idle(client.status()), seconds, "all is free again")

    def refusal(self, code, call):
        with self.assertRaises(BatonError) as caught:
            call()
        self.assertEqual(caught.exception.code, code, caught.exception.text)
        self.assertGreater(len(caught.exception.text), 15)
        return caught.exception
