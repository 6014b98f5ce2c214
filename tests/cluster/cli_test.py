"""The command line as people and scripts use it: words, exit statuses, sentences."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness
from terminal import Terminal

OK, USAGE, BAD_MODEL, UNAVAILABLE, RETRY = 0, 64, 65, 69, 75
VERBS = ("serve", "submit", "chat", "batch", "status", "inspect", "tokenize", "sim")


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BATON_")}
    return {**clean, "NO_COLOR": "1", **more}


def baton(*words, stdin="", seconds=60, **more):
    """Runs the program to its end; (exit status, stdout, stderr)."""
    ran = subprocess.run([harness.BATON, *words], input=stdin.encode(), capture_output=True, timeout=seconds,
                         env=environment(**more))  # fmt: skip
    return ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")


class CommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="baton-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def one_line(self, text, *parts):
        self.assertEqual(len(text.splitlines()), 1, text)
        for part in parts:
            self.assertIn(part, text)


class Words(CommandLine):
    def test_help_lists_the_verbs_and_each_verb_its_options(self):
        for words in ((), ("--help",), ("-h",), ("help",)):
            status, out, err = baton(*words)
            self.assertEqual((status, err), (OK, ""))
            for verb in VERBS:
                self.assertRegex(out, rf"(?m)^  {verb} +\S+")
        for verb in VERBS:
            status, out, err = baton(verb, "--help")
            self.assertEqual((status, err), (OK, ""), verb)
            self.assertIn(f"Usage: baton {verb}", out)
            self.assertIn("--config", out)
        self.assertIn("--client-endpoint", baton("serve", "--help")[1])
        self.assertIn("BATON_CLIENT_ENDPOINT", baton("serve", "--help")[1])
        status, out, _ = baton("--version")
        self.assertEqual(status, OK)
        self.assertRegex(out, r"^baton \d+\.\d+\.\d+")

    def test_an_unknown_verb_or_option_names_the_nearest(self):
        status, out, err = baton("sbumit")
        self.assertEqual((status, out), (USAGE, ""))
        self.one_line(err, "'sbumit'", "did you mean submit?")
        status, _, err = baton("xyzzyplugh")
        self.assertEqual(status, USAGE)
        self.one_line(err, "'xyzzyplugh'", "baton --help")
        for words, near in ((("serve", "--max-num-seq", "3"), "--max-num-seqs"),
                            (("submit", "--endpiont=x", "hello"), "--endpoint"),
                            (("batch", "--concurency", "3", "a", "b"), "--concurrency")):  # fmt: skip
            status, out, err = baton(*words)
            self.assertEqual((status, out), (USAGE, ""))
            self.assertIn(f"'{words[1].split('=')[0]}'; did you mean {near}?", err)
            self.assertIn(f"baton {words[0]} --help", err)
        status, _, err = baton("serve", "--threads", "many")
        self.assertEqual(status, USAGE)
        self.assertIn("--threads", err)

    def test_print_config_shows_where_each_value_comes_from(self):
        config = self.file("baton.toml", "max-num-seqs = 5\nblock-size = 16\nthreads = 3\ninsecure = true\n")
        status, out, err = baton("serve", "--config", config, "--threads", "1", "--print-config",
                                 BATON_BLOCK_SIZE="64", BATON_LOG_LEVEL="debug")  # fmt: skip
        self.assertEqual((status, err), (OK, ""))
        rows = dict((line.split()[0], line.split()[1:]) for line in out.splitlines())
        self.assertEqual(rows["threads"], ["1", "command", "line"])
        self.assertEqual(rows["block-size"], ["64", "environment", "BATON_BLOCK_SIZE"])
        self.assertEqual(rows["log-level"], ["debug", "environment", "BATON_LOG_LEVEL"])
        self.assertEqual(rows["max-num-seqs"], ["5", "file"])
        self.assertEqual(rows["insecure"], ["true", "file"])
        self.assertEqual(rows["max-queued"], ["1024", "default"])
        self.assertEqual(rows["client-endpoint"], ["tcp://127.0.0.1:5757", "default"])
        same = baton("serve", "--threads", "1", "--print-config", BATON_CONFIG=config)[1]
        self.assertRegex(same, r"(?m)^max-num-seqs +5 +file$")
        for words in (("-m", "7"), ("-m7",), ("--max-tokens=7",), ("--max-tokens", "7")):
            config = baton("submit", *words, "--print-config", BATON_MAX_TOKENS="3")[1]
            self.assertRegex(config, r"(?m)^max-tokens +7 +command line$")
        hidden = baton("serve", "--context-length", "99", "--print-config")[1]
        self.assertRegex(hidden, r"(?m)^max-model-len +99 +command line$")

    def test_a_config_file_with_a_wrong_word_or_that_is_not_there_is_refused(self):
        config = self.file("baton.toml", "max-num-sequences = 5\n")
        status, _, err = baton("serve", "--config", config, "--print-config")
        self.assertEqual(status, USAGE)
        self.assertIn("max-num-sequences", err)
        status, _, err = baton("serve", "--config", str(self.folder / "none.toml"), "--print-config")
        self.assertEqual(status, USAGE)
        self.assertIn("none.toml", err)


class Files(CommandLine):
    @classmethod
    def setUpClass(cls):
        cls.model = harness.tiny_model()

    def test_inspect_describes_a_good_file(self):
        status, out, err = baton("inspect", self.model, "--tensors")
        self.assertEqual((status, err), (OK, ""))
        self.assertRegex(out, r"(?m)^architecture +llama$")
        self.assertRegex(out, r"(?m)^context +512$")
        self.assertIn("token_embd.weight", out)
        status, out, err = baton("inspect", "--json", self.model)
        self.assertEqual((status, err), (OK, ""))
        about = json.loads(out)
        self.assertEqual((about["file"], about["version"]), (self.model, 3))
        self.assertEqual(about["size_bytes"], os.path.getsize(self.model))
        self.assertEqual(about["config"]["architecture"], "llama")

    def test_inspect_answers_a_bad_file_with_65_and_one_line(self):
        good = Path(self.model).read_bytes()
        for what, content in (("not a model", b"root:x:0:0"), ("nothing", b""), ("cut off", good[:5000]),
                              ("half of it", good[: len(good) // 2])):  # fmt: skip
            with self.subTest(what):
                path = self.file("bad.gguf", content)
                status, _, err = baton("inspect", path)
                self.assertEqual(status, BAD_MODEL)
                self.one_line(err, "baton inspect: ", "bad.gguf")
                status, out, err = baton("inspect", "--json", path)
                self.assertEqual((status, out), (BAD_MODEL, ""))
        status, _, err = baton("inspect", str(self.folder / "none.gguf"))
        self.assertEqual(status, BAD_MODEL)
        self.one_line(err, "none.gguf", "No such file")
        self.assertEqual(baton("inspect")[0], USAGE)

    def test_tokenize_shows_ids_and_pieces(self):
        status, out, err = baton("tokenize", "-m", self.model, "Hello world")
        self.assertEqual((status, err), (OK, ""))
        pieces = re.findall(r"(?m)^ *(\d+) +(\d+) +'(.*)'$", out)
        self.assertEqual("".join(piece for _, _, piece in pieces), "Hello world")
        ids = [token for _, token, _ in pieces]
        self.assertEqual(baton("tokenize", "-m", self.model, "--ids", "Hello world")[1], " ".join(ids) + "\n")
        piped = baton("tokenize", "-m", self.model, "--ids", "-", stdin="Hello world")[1]
        self.assertEqual(piped, " ".join(ids) + "\n")
        control = "<|im_start|>"
        self.assertEqual(baton("tokenize", "-m", self.model, "--ids", "--special", control)[1], "1\n")
        self.assertNotIn("1", baton("tokenize", "-m", self.model, "--ids", control)[1].split())
        status, _, err = baton("tokenize", "hello")
        self.assertEqual(status, USAGE)
        self.one_line(err, "--model")
        self.assertEqual(baton("tokenize", "-m", self.file("x.gguf", "x"), "hello")[0], BAD_MODEL)


class Talking(CommandLine):
    """Against a server whose answers never end by themselves, so that their length is known."""

    @classmethod
    def setUpClass(cls):
        cls.model = harness.tiny_model("--context", "2048")
        cls.cluster = harness.Cluster(cls.model, ranks=1).__enter__()
        cls.endpoint = cls.cluster.endpoint

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def run_it(self, verb, *words, **options):
        return baton(verb, "-e", self.endpoint, *words, **options)

    def answer_of(self, text, **fields):
        fields = {"max_tokens": 8, "ignore_eos": True, **fields}
        with self.cluster.client() as client:
            return client.submit(messages=[{"role": "user", "content": text}], **fields).result

    def test_submit_streams_an_answer(self):
        expected = self.answer_of("What is wind?").text.encode().decode(errors="replace")
        options = ("-m", "8", "--ignore-eos")
        status, out, err = self.run_it("submit", *options, "What is wind?")
        self.assertEqual((status, err), (OK, ""))
        self.assertEqual(out, expected + ("" if expected.endswith("\n") else "\n"))
        self.assertEqual(self.run_it("submit", *options, "-", stdin="What is wind?")[1], out)
        self.assertEqual(self.run_it("submit", *options, "@" + self.file("q", "What is wind?"))[1], out)
        self.assertEqual(baton("submit", *options, "What is wind?", BATON_ENDPOINT=self.endpoint)[1], out)
        self.assertNotEqual(self.run_it("submit", *options, "--system", "Be brief.", "What is wind?")[1], out)
        self.assertNotEqual(self.run_it("submit", *options, "--raw", "What is wind?")[1], out)

    def test_submit_runs_several_prompts_at_once_and_shows_what_they_cost(self):
        prompts = ("What is wind?", "What is rain?", "@" + self.file("third", "What is snow?"))
        status, out, err = self.run_it("submit", "-m", "5", "--ignore-eos", "--table", *prompts)
        self.assertEqual((status, err), (OK, ""))
        for number, question in enumerate(("What is wind?", "What is rain?", "What is snow?"), 1):
            self.assertIn(f"[{number}] {question}\n", out)
            row = re.search(rf"(?m)^\[{number}\] .*length$", out).group()
            self.assertRegex(row, r" (us|ms|s) ")
            self.assertRegex(row, r" 5 ")
        self.assertRegex(out, r"(?m)^answer +prompt tokens +first token +tokens +tokens/s")

    def test_submit_says_what_is_wrong_by_status_and_sentence(self):
        for words, status, parts in (
            (("--temperature", "5", "hello"), USAGE, ("temperature", "invalid_argument")),
            (("-m", "2045", "hello"), USAGE, ("2048", "context_too_long")),
            (("--deadline-ms", "1", "-m", "2000", "--ignore-eos", "hello"), USAGE, ("deadline_exceeded",)),
            ((), USAGE, ("no prompt",)),
            (("@/no/such/file",), USAGE, ("/no/such/file",)),
        ):
            with self.subTest(words):
                got, out, err = self.run_it("submit", *words)
                self.assertEqual(got, status, err)
                self.one_line(err, "baton submit: ", *parts)
        status, _, err = baton("submit", "-e", "nonsense", "hello")
        self.assertEqual(status, USAGE)
        self.one_line(err, "'nonsense'", "tcp://127.0.0.1:5757")

    def test_nobody_there_is_69_with_the_endpoint(self):
        for words in (("submit", "hello"), ("status",), ("chat",), ("batch", self.file("in", ""), "-")):
            start = time.monotonic()
            status, _, err = baton(*words, "-e", "tcp://127.0.0.1:9", "--connect-timeout-ms", "300")
            self.assertEqual(status, UNAVAILABLE, words)
            self.one_line(err, "tcp://127.0.0.1:9", "baton serve")
            self.assertLess(time.monotonic() - start, 5)

    def test_batch_answers_in_the_order_of_the_file(self):
        lengths = [300 if n % 7 == 0 else 2 for n in range(40)]
        lines = [{"id": f"line {n}", "prompt": f"text {n}", "max_tokens": length, "ignore_eos": True}
                 for n, length in enumerate(lengths)]  # fmt: skip
        source = self.file("in.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
        target = self.folder / "out.jsonl"
        status, out, err = self.run_it("batch", source, str(target))
        self.assertEqual((status, out), (OK, ""))
        self.assertRegex(err.splitlines()[-1], r"^40 requests, 0 errors, ")
        results = [json.loads(line) for line in target.read_text().splitlines()]
        self.assertEqual([r["id"] for r in results], [line["id"] for line in lines])
        self.assertEqual([len(r["ids"]) for r in results], lengths)
        self.assertTrue(all(r["finish"] == "length" and r["usage"]["completion_tokens"] == len(r["ids"])
                            for r in results))  # fmt: skip
        status, out, _ = self.run_it("batch", "--concurrency", "1", source, "-")
        self.assertEqual(status, OK)
        again = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(r["id"], r["ids"], r["text"]) for r in again],
                         [(r["id"], r["ids"], r["text"]) for r in results])  # fmt: skip

    def test_batch_takes_every_kind_of_prompt_and_options_for_all(self):
        lines = ['{"messages": [{"role": "user", "content": "What is wind?"}], "top_logprobs": 2}',
                 '{"id": 7, "prompt_ids": [5, 6, 7], "max_tokens": 0, "prompt_logprobs": 0}',
                 '{"id": "c", "prompt": "x", "temperature": 1.5, "seed": 9, "logit_bias": {"5": -1}, "stop": "zz"}']  # fmt: skip
        status, out, err = self.run_it("batch", self.file("in", "\n".join(lines)), "-", "-m", "8", "--ignore-eos")
        self.assertEqual(status, OK, err)
        chat, score, text = (json.loads(line) for line in out.splitlines())
        expected = self.answer_of("What is wind?", top_logprobs=2)
        self.assertEqual((chat["id"], chat["ids"], chat["text"]), ("1", expected.ids, expected.text))
        self.assertEqual(len(chat["logprobs"]), 8)
        self.assertTrue(all(len(top) == 2 for top in chat["top_logprobs"]))
        self.assertEqual((score["id"], score["ids"], score["prompt_ids"]), ("7", [], [5, 6, 7]))
        self.assertEqual((len(score["prompt_logprobs"]), score["prompt_logprobs"][0]), (3, None))
        self.assertEqual((text["id"], len(text["ids"])), ("c", 8))

    def test_batch_names_the_line_of_what_it_cannot_read(self):
        good = '{"id": "a", "prompt": "x"}'
        for bad, parts in ((good, ("line 3", "'a'", "second time")),
                           ('{"prompt": "x"', ("line 3",)),
                           ('{"prompt": "x", "max_token": 3}', ("line 3", "'max_token'")),
                           ('{"prompt": 3}', ("line 3", "'prompt'", "string")),
                           ('{"max_tokens": 3}', ("line 3", "prompt_ids")),
                           ('{"prompt": "x", "max_tokens": -1}', ("line 3", "'max_tokens'")),
                           ("[1]", ("line 3", "object"))):  # fmt: skip
            with self.subTest(bad):
                target = self.folder / "out"
                status, _, err = self.run_it("batch", self.file("in", f"{good}\n\n{bad}\n"), str(target))
                self.assertEqual(status, USAGE)
                self.one_line(err, "baton batch: ", *parts)
                self.assertFalse(target.exists(), "results of a file that was refused")
        status, _, err = self.run_it("batch", str(self.folder / "none"), "-")
        self.assertEqual(status, USAGE)
        self.one_line(err, "none")

    def test_batch_gives_a_refused_line_its_error_and_the_others_their_result(self):
        lines = ['{"id": "good", "prompt": "x", "max_tokens": 3, "ignore_eos": true}',
                 '{"id": "long", "prompt": "x", "max_tokens": 2048}',
                 '{"id": "hot", "prompt": "x", "temperature": 9}',
                 '{"id": "last", "prompt": "y", "max_tokens": 3, "ignore_eos": true}']  # fmt: skip
        status, out, err = self.run_it("batch", self.file("in", "\n".join(lines)), "-")
        self.assertEqual(status, RETRY)
        self.assertRegex(err.splitlines()[-1], "^4 requests, 2 errors")
        good, long, hot, last = (json.loads(line) for line in out.splitlines())
        self.assertEqual((len(good["ids"]), len(last["ids"])), (3, 3))
        self.assertEqual((long["id"], long["error"]["code"]), ("long", "context_too_long"))
        self.assertEqual((hot["id"], hot["error"]["code"]), ("hot", "invalid_argument"))
        self.assertIn("temperature", hot["error"]["message"])

    def test_status_shows_the_ranks_to_people_and_to_programs(self):
        status, out, err = self.run_it("status")
        self.assertEqual((status, err), (OK, ""))
        self.assertRegex(out, r"^tiny random llama, Baton \S+.*, ready; \d+ clients?, 0 streams?")
        self.assertRegex(out, r"(?m)^ *0 +prefill .* up ")
        self.assertRegex(out, r"(?m)^ *0 +decode .* up +0 of 32 ")
        status, out, err = self.run_it("status", "--json")
        self.assertEqual((status, err), (OK, ""))
        about = json.loads(out)
        self.assertTrue(about["ready"])
        self.assertEqual([w["role"] for w in about["workers"]], ["prefill", "decode"])
        self.assertTrue(all(w["alive"] and w["blocks_free"] == w["blocks"] for w in about["workers"]))
        self.assertIn("done", about["counters"])
        self.assertEqual(about["model"], "tiny random llama")


class Chat(CommandLine):
    @classmethod
    def setUpClass(cls):
        model = harness.tiny_model("--context", "2048")
        cls.cluster = harness.Cluster(model, ranks=1, arguments=harness.SLOW_STEPS).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def open(self, *words):
        terminal = Terminal([harness.BATON, "chat", "-e", self.cluster.endpoint, "--ignore-eos", *words],
                            environment(TERM="xterm"))  # fmt: skip
        self.addCleanup(terminal.close)
        terminal.read_until(lambda text: text.endswith("> "))
        return terminal

    def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(self):
        with self.cluster.client() as client:
            chat = self.open()
            self.assertIn("Ctrl-C", chat.text)
            done = client.status().counters["done"]
            chat.type(b"What is wind?\n")
            chat.read_until(lambda text: len(text) > 40)
            self.assertEqual(client.status().streams, 1)
            chat.type(b"\x03")
            chat.read_until(lambda text: text.endswith("> "))
            self.assertIn("(stopped)", chat.text)
            harness.wait_for(lambda: harness.idle(client.status()), 5, "slot and blocks free")
            self.assertEqual(client.status().counters["done"], done, "the answer ran to its end")
            chat.type(b"\x03")  # at the prompt it clears the line
            chat.read_until(lambda text: text.endswith("> "))
            chat.type(b"And rain?\n")  # the conversation goes on
            chat.read_until(lambda text: len(text) > 40)
            chat.type(b"\x03")
            chat.read_until(lambda text: text.endswith("> "))
            chat.type(b"\x04")
            self.assertEqual(chat.exit_status(), OK)

    def test_a_short_answer_ends_by_itself_and_the_conversation_is_kept(self):
        chat = self.open("-m", "6")
        with self.cluster.client() as client:
            options = dict(max_tokens=6, ignore_eos=True)
            talk = [{"role": "user", "content": "Hello"}]
            first = client.submit(messages=talk, **options).result
            talk += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "Again"}]
            second = client.submit(messages=talk, **options).result
        for question, answer in ((b"Hello\n", first), (b"Again\n", second), (b"/new\nHello\n", first)):
            chat.type(question)
            shown = answer.text.replace("\n", "\r\n")
            chat.read_until(lambda text: shown in text and text.endswith("\r\n> "))
        chat.type(b"/quit\n")
        self.assertEqual(chat.exit_status(), OK)

    def test_questions_from_a_pipe_are_answered_too(self):
        status, out, err = baton("chat", "-e", self.cluster.endpoint, "-m", "3", "--ignore-eos", stdin="Hello\n")
        self.assertEqual((status, err), (OK, ""))
        self.assertGreater(len(out.strip()), 0)
        status, _, err = baton("chat", "-e", self.cluster.endpoint, "-m", "2045", stdin="Hello\n")
        self.assertEqual(status, USAGE)
        self.one_line(err, "context_too_long")


class Serving(CommandLine):
    """What keeps a server from starting: a sentence, a status, and no process left."""

    @classmethod
    def setUpClass(cls):
        cls.model = harness.tiny_model()

    def serve(self, *words, ranks=1, recovery=False, **more):
        """(status, output) of a server that does not come up.

        With --enable-recovery mpirun ends with 0 whatever its ranks ended with, so that the status
        is only seen without it.
        """
        command = [harness.BATON, "serve", *words]
        if ranks > 1:
            root = ["--allow-run-as-root"] if os.getuid() == 0 else []
            recover = ["--enable-recovery"] if recovery else []
            command = ["mpirun", *recover, "--oversubscribe", "--bind-to", "none", *root,
                       "-np", str(ranks), *command]  # fmt: skip
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, env=environment(BATON_MARK=str(self.folder), **more),
                                 start_new_session=True)  # fmt: skip
        try:
            out, _ = child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for pid in [*harness.descendants(child.pid), child.pid]:
                os.kill(pid, signal.SIGKILL)
            child.communicate()
            raise AssertionError(f"{words} did not end within 60 s") from None
        harness.wait_for(lambda: not self.left(), 5, "its processes are gone")
        return child.returncode, out.decode(errors="replace")

    def left(self):
        """Processes that this test started and that still run."""
        mark, found = f"BATON_MARK={self.folder}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return [pid for pid in found if harness.alive(pid)]

    def test_a_bad_model_is_65_and_one_line_with_the_file(self):
        for content in (b"root:x:0", Path(self.model).read_bytes()[:6000]):
            bad = self.file("bad.gguf", content)
            status, out = self.serve("--model", bad, "--client-endpoint", "tcp://127.0.0.1:*")
            self.assertEqual(status, BAD_MODEL, out)
            self.one_line(out, "baton serve: ", "bad.gguf")
        status, out = self.serve("--model", bad, "--client-endpoint", "tcp://127.0.0.1:*", ranks=3)
        self.assertEqual(status, BAD_MODEL, out)
        self.assertEqual(out.count("bad.gguf"), 1, out)
        self.assertRegex(out, r"(?m)^baton serve: rank \d on \S+: ")

    def test_a_port_that_is_taken_is_64_and_a_sentence(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            status, out = self.serve("--model", self.model, "--client-endpoint", endpoint)
            self.assertEqual(status, USAGE, out)
            self.one_line(out, endpoint, "in use", "--client-endpoint")
            status, out = self.serve("--model", self.model, "--client-endpoint", endpoint, ranks=3)
            self.assertEqual(status, USAGE, out)
            self.assertEqual(out.count(f"cannot listen on {endpoint}"), 1, out)

    def test_ranks_with_different_models_are_refused(self):
        other = harness.tiny_model("--seed", "2")
        script = self.file("serve.sh", "#!/bin/sh\n"
                           f'[ "$OMPI_COMM_WORLD_RANK" = 2 ] && export BATON_MODEL={other}\n'
                           f'exec {harness.BATON} serve --client-endpoint "tcp://127.0.0.1:*"\n')  # fmt: skip
        os.chmod(script, 0o755)
        binary, harness.BATON = harness.BATON, script
        try:
            status, out = self.serve(ranks=3, BATON_MODEL=self.model)
        finally:
            harness.BATON = binary
        self.assertNotEqual(status, OK)
        self.assertEqual(len(re.findall("rank 0 and rank 2 opened different model files: ", out)), 1, out)

    def test_an_address_of_other_hosts_needs_the_word_insecure(self):
        status, out = self.serve("--model", self.model, "--client-endpoint", "tcp://0.0.0.0:*")
        self.assertEqual(status, USAGE)
        self.one_line(out, "tcp://0.0.0.0:*", "not encrypted", "--insecure")

    def test_values_out_of_range_are_64_and_name_the_option(self):
        for words in (("--threads", "99999"), ("--block-size", "17"), ("--max-num-seqs", "0"),
                      ("--kv-cache-memory", "much"), ("--activations", "int4"), ("--log-level", "loud")):  # fmt: skip
            status, out = self.serve("--model", self.model, *words)
            self.assertEqual(status, USAGE)
            self.one_line(out, *words, "expected")
        status, out = self.serve("--model", self.model, BATON_ISA="mmx")
        self.assertEqual(status, USAGE)
        self.one_line(out, "BATON_ISA", "mmx")
        self.one_line(self.serve()[1], "--model")

    def test_two_ranks_are_refused_with_what_is_expected(self):
        sentence = "mpirun started 2 ranks; expected 1 (all in one process) or at least 3"
        for recovery in (False, True):
            status, out = self.serve("--model", self.model, "--client-endpoint", "tcp://127.0.0.1:*", ranks=2,
                                     recovery=recovery)  # fmt: skip
            self.assertEqual(out.count(sentence), 1, out)
            if not recovery:
                self.assertEqual(status, USAGE, out)

    def test_ranks_that_do_not_add_up_are_refused_with_the_numbers(self):
        status, out = self.serve("--model", self.model, "--prefill-ranks", "2", "--decode-ranks", "2", ranks=3)
        self.assertEqual(status, USAGE, out)
        self.assertEqual(out.count("need 5 ranks"), 1, out)


if __name__ == "__main__":
    unittest.main()
