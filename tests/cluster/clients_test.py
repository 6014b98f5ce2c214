"""The client libraries against real clusters: streams, ends, keys, lost connections, slow readers."""

import asyncio
import json
import os
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import zmq

import harness
from baton_client import AsyncClient, BatonError, Client, wire
from baton_client.types import Request
from tcp_proxy import TcpProxy
from with_cluster import CONTEXT, WithCluster, joined, outcome, prompt

LONG = dict(max_tokens=400, ignore_eos=True, temperature=0.9, top_logprobs=1)


class Streams(WithCluster):
    ranks = 3

    def test_what_a_stream_brings_is_its_result(self):
        with self.cluster.client() as client:
            streams = [client.submit(ids=prompt(n), seed=n, **LONG) for n in range(6)]
            for stream in streams:
                parts = list(stream)
                self.assertGreater(len(parts), 1)
                self.assertEqual(joined(parts), outcome(stream.result)[:4])
                self.assertEqual(len(stream.result.ids), 400)
                self.assertEqual(stream.result.finish, "length")
                self.assertEqual(len(stream.result.logprobs), 400)
                self.assertTrue(all(len(top) == 1 and value <= 0 for top, value in
                                    zip(stream.result.top, stream.result.logprobs)))  # fmt: skip
                self.assertIsNone(stream.next())
                self.assertTrue(stream.finished)

    def test_usage_tells_where_and_how_long(self):
        with self.cluster.client() as client:
            result = client.submit(ids=prompt(1, 40), max_tokens=20, ignore_eos=True).result
            usage = result.usage
            self.assertEqual((usage.prompt_tokens, usage.completion_tokens), (40, 20))
            self.assertEqual((usage.prefill_rank, usage.decode_rank, usage.attempts), (1, 2, 0))
            self.assertGreater(usage.kv_bytes, 0)
            self.assertTrue(0 < usage.ttft_us <= usage.total_us)
            self.assertEqual(result.prompt_ids, prompt(1, 40))

    def test_prompt_scores_come_without_a_token(self):
        with self.cluster.client() as client:
            result = client.submit(ids=prompt(2), max_tokens=0, prompt_logprobs=2).result
            self.assertEqual(result.ids, [])
            self.assertEqual(len(result.prompt_logprobs), 12)
            self.assertIsNone(result.prompt_logprobs[0])
            self.assertTrue(all(value < 0 for value in result.prompt_logprobs[1:]))
            self.assertTrue(all(len(top) == 2 for top in result.prompt_top))

    def test_the_asyncio_client_gives_the_same(self):
        with self.cluster.client() as client:
            expected = [outcome(client.submit(ids=prompt(n), seed=n, **LONG).result) for n in range(4)]

        async def follow(client, number):
            stream = await client.submit(ids=prompt(number), seed=number, **LONG)
            parts = [part async for part in stream]
            result = await stream.wait()
            self.assertEqual(joined(parts), outcome(result)[:4])
            return outcome(result)

        async def all_of_them():
            async with AsyncClient(self.cluster.endpoint) as client:
                self.assertEqual(client.model.context, CONTEXT)
                got = await asyncio.gather(*(follow(client, n) for n in range(4)))
                status = await client.status()
                self.assertTrue(status.ready)
                doomed = await client.submit(ids=prompt(5), **{**LONG, "max_tokens": 2000})
                await doomed.next()
                await doomed.cancel()
                with self.assertRaises(BatonError) as caught:
                    await doomed.wait()
                self.assertEqual(caught.exception.code, "cancelled")
                bad = await client.submit(ids=[], text="")
                with self.assertRaises(BatonError) as caught:
                    async for _ in bad:
                        self.fail("a part of a request that cannot be")
                self.assertEqual(caught.exception.code, "invalid_argument")
                return got

        self.assertEqual(asyncio.run(asyncio.wait_for(all_of_them(), 60)), expected)

    def test_several_clients_at_once_get_what_each_would_get_alone(self):
        with self.cluster.client() as client:
            alone = [outcome(client.submit(ids=prompt(n), seed=n, **LONG).result) for n in range(8)]
        got = [None] * 8

        def one(number):
            with self.cluster.client(name=f"client {number}") as client:
                got[number] = outcome(client.submit(ids=prompt(number), seed=number, **LONG).result)

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(got, alone)

    def test_status_shows_ranks_clients_and_counters(self):
        with self.cluster.client() as client, self.cluster.client():
            before = client.status()
            client.submit(ids=prompt(3), max_tokens=5, ignore_eos=True).result
            self.wait_idle(client)
            after = client.status()
            self.assertTrue(after.ready)
            self.assertEqual(after.clients, 2)
            self.assertEqual(after.streams, 0)
            self.assertEqual([(w.rank, w.role, w.alive) for w in sorted(after.workers, key=lambda w: w.rank)],
                             [(1, "prefill", True), (2, "decode", True)])  # fmt: skip
            self.assertTrue(all(w.host and w.blocks > 0 for w in after.workers))
            self.assertEqual(after.counters["done"] - before.counters["done"], 1)
            self.assertEqual(after.counters["tokens"] - before.counters["tokens"], 5)
            self.assertGreater(after.uptime_us, before.uptime_us)
            self.assertEqual(after.model, client.model.name)
            self.assertEqual(after.version, client.model.version)


class Ends(WithCluster):
    """An engine that takes long, so that a request still runs when something happens to it."""

    model = ()  # context 512
    arguments = harness.SLOW_STEPS

    def long(self, client, **options):
        stream = client.submit(ids=prompt(1), **{**dict(max_tokens=480, ignore_eos=True), **options})
        self.assertTrue(stream.next())
        return stream

    def test_a_cancelled_stream_ends_at_once_and_frees_what_it_held(self):
        with self.cluster.client() as client:
            stream = self.long(client)
            start = time.monotonic()
            stream.cancel()
            stream.cancel()
            self.refusal("cancelled", lambda: stream.result)
            self.assertLess(time.monotonic() - start, 2)
            self.wait_idle(client, 3)
            stream.cancel()  # of what has ended: nothing happens
            self.refusal("cancelled", lambda: list(stream))

    def test_a_deadline_ends_a_stream_and_says_so(self):
        with self.cluster.client() as client:
            start = time.monotonic()
            error = self.refusal("deadline_exceeded", lambda: client.submit(
                ids=prompt(1), max_tokens=480, ignore_eos=True, deadline_ms=700).result)  # fmt: skip
            self.assertLess(time.monotonic() - start, 3)
            self.assertIn("700", error.text)
            self.assertEqual(error.retry_after_ms, 0)
            self.wait_idle(client, 3)

    def test_a_refusal_carries_code_sentence_and_whether_to_try_again(self):
        with self.cluster.client() as client:
            error = self.refusal("context_too_long", lambda: client.submit(ids=[5] * 500, max_tokens=100).result)
            self.assertIn("512", error.text)
            self.assertEqual(error.retry_after_ms, 0)
            self.assertIn("context_too_long", str(error))

    def test_other_content_under_a_key_is_a_conflict_and_the_first_goes_on(self):
        with self.cluster.client() as client:
            first = self.long(client, idempotency_key="one", max_tokens=60)
            self.refusal("conflict", lambda: client.submit(ids=prompt(2), max_tokens=60, ignore_eos=True,
                                                           idempotency_key="one").result)  # fmt: skip
            self.assertEqual(len(first.result.ids), 60)

    def test_a_hundred_submits_with_one_key_run_once(self):
        with self.cluster.client() as client, self.cluster.client() as other:
            before = client.status().counters
            streams = [(client if n % 2 else other).submit(
                ids=prompt(7), max_tokens=40, ignore_eos=True, temperature=1.0, idempotency_key="hundred")
                for n in range(100)]  # fmt: skip
            results = [outcome(stream.result) for stream in streams]
            self.assertTrue(all(result == results[0] for result in results))
            for stream in streams[:10]:
                self.assertEqual(joined(list(stream)), results[0][:4])
            after = client.status().counters
            moved = {name: after[name] - before[name] for name in after}
            self.assertEqual((moved["submitted"], moved["attached"], moved["done"]), (100, 99, 1))
            self.assertEqual(moved["tokens"], 40)

    def test_a_client_without_a_session_is_told_to_say_hello(self):
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(self.cluster.endpoint)
        try:
            socket.send_multipart(wire.frames(wire.SUBMIT, wire.submit_body(7, Request(ids=[5], max_tokens=1))))
            self.assertTrue(socket.poll(5000))
            kind, _, body = wire.parse(socket.recv_multipart())
            self.assertEqual((kind, body[0]), (wire.REFUSED, 7))
            self.assertEqual(wire.error_of(body[1]).code, "not_found")
            socket.send_multipart(wire.frames(wire.HELLO, ["a session that never was", "test"]))
            self.assertTrue(socket.poll(5000))
            kind, _, body = wire.parse(socket.recv_multipart())
            self.assertEqual(kind, wire.MODEL_REPLY)
            self.assertNotEqual(body[0], "a session that never was")
        finally:
            socket.close(linger=0)
            context.term()

    def test_nobody_there_is_said_within_the_time_given(self):
        start = time.monotonic()
        error = self.refusal("unavailable", lambda: Client("tcp://127.0.0.1:9", connect_timeout=0.5))
        self.assertLess(time.monotonic() - start, 3)
        self.assertIn("tcp://127.0.0.1:9", error.text)
        self.assertRaises(ValueError, lambda: Client("not an endpoint"))


class LostConnections(WithCluster):
    arguments = ("--min-step-us", "2000")

    def undisturbed(self, numbers):
        with self.cluster.client() as client:
            streams = [client.submit(ids=prompt(n), seed=n, **LONG) for n in numbers]
            return [outcome(stream.result) for stream in streams]

    def test_streams_go_on_after_each_cut_without_loss_or_repeat(self):
        expected = self.undisturbed(range(6))
        with TcpProxy(self.cluster.endpoint) as proxy, Client(proxy.endpoint) as client:
            parts = [[] for _ in range(6)]
            streams = [client.submit(ids=prompt(n), seed=n, **LONG) for n in range(6)]

            def read(number):
                while part := streams[number].next():
                    parts[number].append(part)

            readers = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(6)]
            for reader in readers:
                reader.start()
            for count in range(100, 2000, 300):  # tokens of all streams, 2,400 in the end
                harness.wait_for(lambda: sum(len(p.ids) for ps in parts for p in ps) >= count, 60, "tokens")
                proxy.cut()
            for reader in readers:
                reader.join(60)
            self.assertGreaterEqual(proxy.passed, 4, "no connection was made again")
            self.assertEqual([outcome(stream.result) for stream in streams], expected)
            self.assertEqual([joined(p) for p in parts], [e[:4] for e in expected])

    def test_the_asyncio_client_goes_on_after_cuts_too(self):
        expected = self.undisturbed(range(4))

        async def follow(client, number, proxy):
            stream = await client.submit(ids=prompt(number), seed=number, **LONG)
            parts = []
            async for part in stream:
                parts.append(part)
                if number == 0 and len(parts) in (2, 10, 20, 30):
                    proxy.cut()
            return joined(parts)

        async def all_of_them(proxy):
            async with AsyncClient(proxy.endpoint) as client:
                return await asyncio.gather(*(follow(client, n, proxy) for n in range(4)))

        with TcpProxy(self.cluster.endpoint) as proxy:
            got = asyncio.run(asyncio.wait_for(all_of_them(proxy), 60))
            self.assertGreaterEqual(proxy.passed, 3, "no connection was made again")
        self.assertEqual(got, [e[:4] for e in expected])

    def test_the_cpp_client_goes_on_after_cuts_too(self):
        words = ["submit", "-m", "1500", "--ignore-eos", "-t", "1", "--seed", "5", "Say it all."]
        environment = {**os.environ, "BATON_ENDPOINT": self.cluster.endpoint}
        expected = subprocess.run([harness.BATON, *words], env=environment, capture_output=True, check=True).stdout
        with TcpProxy(self.cluster.endpoint) as proxy:
            environment["BATON_ENDPOINT"] = proxy.endpoint
            child = subprocess.Popen([harness.BATON, *words], env=environment, stdout=subprocess.PIPE)
            out = b""
            for share in (0.01, 0.1, 0.2, 0.3, 0.4, 0.5):
                while len(out) < share * len(expected) and (more := os.read(child.stdout.fileno(), 65536)):
                    out += more
                proxy.cut()
            out += child.stdout.read()
            child.stdout.close()
            self.assertEqual(child.wait(30), 0)
            self.assertGreaterEqual(proxy.passed, 3, "no connection was made again")
            self.assertEqual(out, expected)

    def test_a_batch_of_many_jobs_goes_on_after_cuts_too(self):
        lines = [json.dumps({"prompt_ids": prompt(n), "max_tokens": 100, "ignore_eos": True, "seed": n,
                             "temperature": 1, "top_logprobs": 1}) for n in range(80)]  # fmt: skip

        def results(text):
            answers = [json.loads(line) for line in text.splitlines()]
            return [[answer[name] for name in ("id", "ids", "logprobs", "text")] for answer in answers]

        with tempfile.TemporaryDirectory() as folder, TcpProxy(self.cluster.endpoint) as proxy:
            source = Path(folder) / "in.jsonl"
            source.write_text("\n".join(lines))
            command = [harness.BATON, "batch", str(source), "-", "--concurrency", "16", "-e"]
            expected = subprocess.run([*command, self.cluster.endpoint], capture_output=True, check=True).stdout
            target = Path(folder) / "out.jsonl"
            command = [*command, proxy.endpoint]
            command[3] = str(target)
            with self.cluster.client() as watcher:
                tokens = lambda: watcher.status().counters["tokens"]  # noqa: E731
                start = tokens()
                child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
                for count in range(200, 7000, 1500):
                    harness.wait_for(lambda: tokens() - start > count, 30, f"{count} tokens")
                    proxy.cut()
            self.assertEqual(child.wait(60), 0)
            self.assertGreaterEqual(proxy.passed, 3, "no connection was made again")
            self.assertEqual(results(target.read_text()), results(expected))

    def test_a_hundred_cuts_amid_the_parts_of_messages(self):
        """A client whose connection ends between two frames of a message must not end with it."""
        expected = self.undisturbed(range(8))
        with TcpProxy(self.cluster.endpoint) as proxy, Client(proxy.endpoint) as client:
            streams = [client.submit(ids=prompt(n), seed=n, **LONG) for n in range(8)]
            seen = 0
            while not all(stream.finished for stream in streams):
                seen += sum(1 for stream in streams if stream.next(0.001))
                if proxy.passed < 100:
                    proxy.cut()
                    time.sleep(0.01)
            self.assertGreaterEqual(proxy.passed, 8)
            self.assertGreater(seen, 8)
            self.assertEqual([outcome(stream.result) for stream in streams], expected)

    def test_submits_and_cancels_survive_a_cut_in_the_same_moment(self):
        with TcpProxy(self.cluster.endpoint) as proxy, Client(proxy.endpoint) as client:
            kept, doomed = [], []
            for number in range(20):
                kept.append(client.submit(ids=prompt(number), seed=number, **{**LONG, "max_tokens": 8}))
                doomed.append(client.submit(ids=prompt(99), **{**LONG, "max_tokens": 2000}))
                if number % 5 == 0:
                    proxy.cut()
                doomed[-1].cancel()
                time.sleep(0.1)
            got = [outcome(stream.result) for stream in kept]
            for stream in doomed:
                self.refusal("cancelled", lambda: stream.result)
            self.wait_idle(client)
        with self.cluster.client() as client:
            alone = [outcome(client.submit(ids=prompt(n), seed=n, **{**LONG, "max_tokens": 8}).result)
                     for n in range(20)]  # fmt: skip
        self.assertEqual(got, alone)

    def test_a_client_that_stays_away_has_its_jobs_cancelled(self):
        with self.cluster.client() as watcher, TcpProxy(self.cluster.endpoint) as proxy:
            with Client(proxy.endpoint) as client:
                streams = [client.submit(ids=prompt(n), **{**LONG, "max_tokens": 1900}) for n in range(4)]
                self.assertTrue(all(stream.next() for stream in streams))
                self.assertFalse(harness.idle(watcher.status()))
                proxy.close()
                proxy.cut()
                took = self.wait_idle(watcher, 5)
                self.assertGreater(took, 0.2, "the client had no time to come back")
                self.assertLess(took, 3)
                proxy.open()
                for stream in streams:
                    error = self.refusal("cancelled", lambda: stream.result)
                    self.assertIn("gone", error.text)
                self.assertEqual(len(client.submit(ids=[5], max_tokens=3, ignore_eos=True).result.ids), 3)

    def test_a_connection_that_never_comes_back_fails_its_jobs_in_time(self):
        with TcpProxy(self.cluster.endpoint) as proxy:
            with Client(proxy.endpoint, reconnect_timeout=1.0) as client:
                stream = client.submit(ids=prompt(1), **{**LONG, "max_tokens": 1900})
                self.assertTrue(stream.next())
                proxy.close()
                proxy.cut()
                start = time.monotonic()
                self.refusal("unavailable", lambda: stream.result)
                self.assertLess(time.monotonic() - start, 5)


class SlowReader(WithCluster):
    """A client below the libraries, which acknowledge by themselves."""

    def receive(self, socket, seconds):
        """ClientTokens and ClientDone as they come, until nothing comes for `seconds`."""
        while socket.poll(int(seconds * 1000)):
            kind, _, body = wire.parse(socket.recv_multipart())
            if kind in (wire.TOKENS, wire.DONE, wire.REFUSED):
                yield kind, body

    def test_it_pauses_and_slows_nobody_and_goes_on_when_it_reads(self):
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(self.cluster.endpoint)
        socket.send_multipart(wire.frames(wire.HELLO, ["", "slow"]))
        jobs = range(1, 5)
        request = dict(max_tokens=1500, ignore_eos=True, top_logprobs=20)
        try:
            for job in jobs:
                body = wire.submit_body(job, Request(ids=prompt(job), **request))
                socket.send_multipart(wire.frames(wire.SUBMIT, body))
            ids = {job: [] for job in jobs}
            done = set()
            for kind, body in self.receive(socket, 2):
                self.assertEqual(kind, wire.TOKENS, "it ended although nothing was acknowledged")
                ids[body[0]] += body[3]
            self.assertLess(sum(map(len, ids.values())), 4 * 1500)
            with self.cluster.client() as client:
                paused = client.status()
                self.assertGreater(paused.streams, 0)
                other = client.submit(ids=prompt(1), max_tokens=300, ignore_eos=True)
                self.assertEqual(len(other.result.ids), 300)
                time.sleep(1.2)  # workers report every half second
                steps = [w.steps for w in client.status().workers]
                time.sleep(1.2)
                after = client.status()
                self.assertEqual([w.steps for w in after.workers], steps, "a paused slot computes")
                self.assertEqual(after.streams, paused.streams)
                for job in jobs:
                    socket.send_multipart(wire.frames(wire.ACK, [job, len(ids[job]), False]))
                for kind, body in self.receive(socket, 5):
                    self.assertNotEqual(kind, wire.REFUSED, body)
                    if kind == wire.DONE:
                        done.add(body[0])
                        self.assertEqual(body[1][0][0], ids[body[0]])
                        if len(done) == len(jobs):
                            break
                        continue
                    self.assertEqual(body[2], len(ids[body[0]]), "a gap or a repeat")
                    ids[body[0]] += body[3]
                    socket.send_multipart(wire.frames(wire.ACK, [body[0], len(ids[body[0]]), False]))
                self.assertEqual(done, set(jobs))
                self.assertTrue(all(len(got) == 1500 for got in ids.values()))
                self.wait_idle(client)
        finally:
            socket.close(linger=0)
            context.term()


if __name__ == "__main__":
    unittest.main()
