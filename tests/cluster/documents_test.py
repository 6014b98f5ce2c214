"""What the documents of the clients say: their examples run, the package installs."""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import harness
from with_cluster import CONTEXT, WithCluster


def blocks_of(path, language):
    text = (harness.ROOT / path).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Documents(WithCluster):
    def run_block(self, block):
        self.assertIn("tcp://127.0.0.1:5757", block)
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(block.replace("tcp://127.0.0.1:5757", self.cluster.endpoint), "example", "exec"),
                 {"__name__": "__main__"})  # fmt: skip
        return out.getvalue()

    def test_the_python_examples_run_as_they_are(self):
        clients = blocks_of("docs/clients.md", "python")
        self.assertEqual(len(clients), 3)
        out = self.run_block(clients[0])
        self.assertRegex(out, rf"(?m)^tiny random llama {CONTEXT}$")
        self.assertRegex(out, r"(stop|length) \d+ \[-")
        self.assertTrue(out.endswith("cancelled\n"), out)
        self.assertEqual(len(set(re.findall(r"sum-\d+ \[", self.run_block(clients[1])))), 20)
        self.assertTrue(self.run_block(clients[2]))
        readme = blocks_of("launch/python/README.md", "python")
        self.assertEqual(len(readme), 2)
        self.assertIn("completion_tokens=", self.run_block(readme[0]))
        self.assertTrue(self.run_block(readme[1]))
        smallest = blocks_of("docs/protocol-client.md", "python")
        self.assertEqual(len(smallest), 1)
        self.assertRegex(self.run_block(smallest[0]), r"\d+ tokens, first after \d+\.\d ms")

    def test_the_cpp_example_builds_without_mpi_and_boost_and_runs(self):
        above = Path(harness.BATON).resolve().parents[1]
        libraries = [above / "launch/libbaton_client.a", above / "runtime/libbaton_actor.a",
                     above / "runtime/libbaton_layout.a", above / "runtime/libbaton_base.a"]  # fmt: skip
        if not all(library.exists() for library in libraries):
            self.skipTest(f"no static libraries beside {harness.BATON}")
        example = blocks_of("docs/clients.md", "cpp")[0]
        self.assertIn("tcp://127.0.0.1:5757", example)
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder) / "example.cpp", Path(folder) / "example"
            source.write_text(example.replace("tcp://127.0.0.1:5757", self.cluster.endpoint))
            command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{harness.ROOT}", str(source), "-o",
                       str(program), "-Wl,--start-group", *map(str, libraries), "-Wl,--end-group", "-lzmq",
                       "-lspdlog", "-lfmt", "-lxxhash", "-lpthread"]  # fmt: skip
            built = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr)
            ran = subprocess.run([program], capture_output=True, timeout=60)
            self.assertEqual((ran.returncode, ran.stderr), (0, b""))
            self.assertGreater(len(ran.stdout), 10)
            linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
            self.assertNotRegex(linked, "libmpi|libboost|libcuda")

    def test_the_cpp_header_stands_alone(self):
        header = harness.ROOT / "launch/client/baton_client.h"
        includes = re.findall(r"#include\s+(\S+)", header.read_text())
        self.assertTrue(includes)
        for name in includes:
            self.assertRegex(name, r"^<[a-z_]+>$", "only headers of the standard library")
        built = subprocess.run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-xc++", "-"],
                               input=f'#include "{header}"\nint main() {{ return 0; }}\n',
                               capture_output=True, text=True, cwd="/")  # fmt: skip
        self.assertEqual(built.returncode, 0, built.stderr)

    def test_pip_installs_the_package(self):
        have = subprocess.run([sys.executable, "-c", "import setuptools, wheel, venv, pip, zmq, msgpack"],
                              capture_output=True, text=True)  # fmt: skip
        if have.returncode != 0:
            self.skipTest("not installed here: " + have.stderr.strip().splitlines()[-1])
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            shutil.copytree(harness.ROOT / "launch/python", source)  # the build writes beside its sources
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages",
                            f"{folder}/venv"], check=True)  # fmt: skip
            python = f"{folder}/venv/bin/python"
            install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps",
                       "--no-build-isolation", str(source)]  # fmt: skip
            installed = subprocess.run(install, capture_output=True, text=True)
            self.assertEqual(installed.returncode, 0, installed.stderr)
            script = (
                "import baton_client, pathlib, sys\n"
                "home = pathlib.Path(baton_client.__file__).parent\n"
                "assert (home / 'py.typed').exists() and 'site-packages' in str(home), home\n"
                "with baton_client.Client(sys.argv[1]) as client:\n"
                "    print(len(client.submit(ids=[5], max_tokens=4, ignore_eos=True).result.ids))\n"
            )
            ran = subprocess.run([python, "-c", script, self.cluster.endpoint], capture_output=True, text=True,
                                 cwd="/", env={**os.environ, "PYTHONPATH": ""})  # fmt: skip
            self.assertEqual((ran.returncode, ran.stdout), (0, "4\n"), ran.stderr)


if __name__ == "__main__":
    unittest.main()
