#!/usr/bin/env python3
"""The shape of the source, as a test: who may include whom, sizes, names, what is not called where.

  tidy.py ROOT          checks a checkout; a line per fault, then 'N files, N faults'
  tidy.py --self-test   proves that every rule bites
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = (".h", ".cpp", ".cu", ".cuh")
LINES_MAX, FUNCTION_MAX, COLUMNS_MAX = 500, 70, 100

# Folder -> what it may include, beside itself. The longest matching folder counts.
MAY_INCLUDE = {
    "kernels": [],
    "runtime/base": [],
    "runtime/layout": ["kernels", "runtime/base"],
    "runtime/actor": ["runtime/base", "runtime/layout"],
    "runtime/model": ["runtime/base"],
    "runtime/engine": ["kernels", "runtime/base", "runtime/layout", "runtime/actor", "runtime/model"],
    "runtime/node": ["runtime/base", "runtime/layout", "runtime/actor"],
    "runtime/sim": ["runtime/base", "runtime/layout", "runtime/actor", "runtime/engine"],
    "transport": ["kernels", "runtime"],
    "transport/sim": ["transport/control", "transport/kv", "runtime"],
    "actors/protocol": ["runtime/base", "runtime/layout", "runtime/actor"],
    "actors": ["actors", "transport/kv", "runtime/base", "runtime/layout", "runtime/actor", "runtime/model",
               "runtime/engine"],
    "launch/client": ["actors/protocol", "runtime/base", "runtime/layout", "runtime/actor"],
    "launch": ["launch", "actors", "transport", "runtime", "kernels"],
    "tests": ["tests", "launch", "actors", "transport", "runtime", "kernels"],
}
OWN = ("kernels/", "runtime/", "transport/", "actors/", "launch/", "tests/")

# Third-party headers and the only places that may include them: slow ones, and those that would
# let a layer reach past its port.
FOREIGN = {
    r"boost/": ("runtime/node/", "transport/control/", "launch/listen/"),
    r"mpi\.h": ("transport/mpi/",),
    r"zmq\.hpp|zmq\.h": ("transport/control/", "launch/client/", "launch/listen/", "tests/"),
    r"msgpack": ("runtime/actor/wire.cpp", "tests/"),
    r"nlohmann/": ("runtime/base/json",),
    r"CLI/": ("launch/cli/command.cpp",),
    r"toml\+\+/": ("launch/serve/cluster_file.cpp",),
    r"spdlog/": ("runtime/base/log.cpp",),
    r"immintrin\.h|x86intrin\.h": ("kernels/",),
}

# What an actor, a policy or a kernel must not call, because it would not be the same twice.
BANNED = [
    (r"\bstd::(thread|jthread|mutex|condition_variable|async)\b", ("actors/", "runtime/sim/", "runtime/layout/"),
     "actors and the simulator have one thread"),
    (r"\bstd::chrono::\w*clock\b|\bgettimeofday\b|\bclock_gettime\b|(?<![\w:])time\(", ("actors/", "runtime/sim/",
     "runtime/layout/", "transport/kv/"), "time comes through Context"),
    (r"\bstd::(random_device|mt19937\w*|rand)\b|(?<!\w)rand\(", ("actors/", "kernels/"),
     "randomness comes through Context, or from Philox"),
    (r"\bstd::unordered_", ("actors/", "runtime/sim/", "launch/sim/"), "iteration order must be the same in every run"),
    (r"\b(malloc|calloc|realloc)\(|\bnew \w|\bstd::(vector|string|map|unique_ptr|shared_ptr)\b|\bthrow\b|\bprintf\(",
     ("kernels/",), "kernels do not allocate, log or throw"),
    (r"\bstd::(exp|log|sin|cos|pow|tanh)f?\(", ("kernels/", "runtime/engine/"), "no libm where numbers are computed"),
    (r"\bconst_cast\b", OWN, "what is const stays const"),
    (r"#pragma omp|<omp\.h>", OWN, "the team is the only thread pool of kernels"),
]
# Files of kernels/ that are set-up, not kernels: run once, outside any step.
SETUP_FILES = ("kernels/team.cpp", "kernels/team.h", "kernels/isa.cpp", "kernels/isa.h", "kernels/cpu/isa.cpp")
# The output of a program for people may name these things; nothing else may.
PROMISES = re.compile(r"\b(TODO|FIXME|XXX)\b|not implemented", re.I)
MACHINE_PATHS = re.compile(r"(?<![\w.{}$])/(?:work|root|home)/")


def included(text):
    return re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.M)


def folder_rule(path):
    best = ""
    for folder in MAY_INCLUDE:
        if path.startswith(folder + "/") and len(folder) > len(best):
            best = folder
    return best


def code_lines(text):
    """Lines without comments and string literals, for the call bans."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)
    text = re.sub(r'R"(\w*)\(.*?\)\1"', lambda m: '""' + "\n" * m.group(0).count("\n"), text, flags=re.S)
    lines = []
    for line in text.split("\n"):
        line = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
        lines.append(re.sub(r"//.*", "", line))
    return lines


def check_includes(path, text):
    folder = folder_rule(path)
    for name in included(text):
        if name.startswith(OWN):
            allowed = [folder, *MAY_INCLUDE.get(folder, [])]
            if not any(name.startswith(place + "/") for place in allowed):
                yield 0, f"{folder}/ may not include {name}"
        for pattern, places in FOREIGN.items():
            if re.match(pattern, name) and not path.startswith(places) and not path.startswith("tests/"):
                yield 0, f"{name} may be included in {', '.join(places)} only"


def check_sizes(path, text):
    lines = text.split("\n")
    if len(lines) - 1 > LINES_MAX:
        yield 0, f"{len(lines) - 1} lines; a file has at most {LINES_MAX}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and "http" not in line and 'R"' not in line:
            yield number, f"{len(line)} columns; a line has at most {COLUMNS_MAX}"
    yield from function_lengths(lines)


def function_lengths(lines):
    """Definitions at namespace scope: from the line that starts in column 0 to the '}' there. Labels of a
    switch that is a table do not count."""
    start, labels = None, 0
    for number, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_~]", line) and not re.match(
                r"(namespace|struct|class|enum|union|using|template|extern|constexpr|inline constexpr|static const|public|"
                r"private|protected|TEST_CASE|const|BATON_)\b", line):
            if start is None and not line.rstrip().endswith(";"):
                start, labels = number, 0
        elif line.startswith("}"):
            if start is not None and number - start + 1 - labels > FUNCTION_MAX:
                yield start, f"a function of {number - start + 1} lines; at most {FUNCTION_MAX}"
            start = None
        elif re.fullmatch(r"\s+case [\w:]+:", line):
            labels += 1


def check_calls(path, text):
    if path.startswith("tests/") or path in SETUP_FILES:
        return
    for number, line in enumerate(code_lines(text), 1):
        for pattern, places, why in BANNED:
            if path.startswith(places) and re.search(pattern, line):
                yield number, f"'{re.search(pattern, line).group(0)}': {why}"


def check_words(path, text):
    if path.startswith("tests/tidy/"):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if PROMISES.search(line):
            yield number, "a promise of later work: do it now, or say in docs what is missing"
        if MACHINE_PATHS.search(line):
            yield number, "a path of one machine"


def check_header(path, text):
    if path.endswith(".h") and "#pragma once" not in text[:400]:
        yield 0, "a header starts with #pragma once"
    if re.search(r"\bdefault\s*:", "\n".join(code_lines(text))) and path.startswith(("actors/",)):
        yield 0, "a switch over an enum has no default: the compiler finds what is missing"


def faults_of(path, text):
    if path.endswith(SOURCES):
        for rule in (check_includes, check_sizes, check_calls, check_header):
            yield from rule(path, text)
    yield from check_words(path, text)


def tracked(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                             check=False)
    names = listing.stdout.split("\n") if listing.returncode == 0 else [
        str(p.relative_to(root)) for p in Path(root).rglob("*") if p.is_file()]
    wanted = SOURCES + (".py", ".txt", ".md", ".json", ".toml", "")
    skipped = ("tests/oracle/data/", "tests/fuzz/corpus/", "build/")
    return sorted(n for n in names if n and Path(n).suffix in wanted and not n.startswith(skipped) and n != "LICENSE")


def check_tree(root):
    count, faults = 0, []
    for name in tracked(root):
        file = Path(root) / name
        if not file.is_file():
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        count += 1
        faults += [f"{name}:{line}: {what}" if line else f"{name}: {what}" for line, what in faults_of(name, text)]
    return count, faults


SELF_TESTS = [
    ("kernels/a.h", '#pragma once\n#include "runtime/base/ids.h"\n', "may not include"),
    ("runtime/base/a.h", '#pragma once\n#include "runtime/actor/actor.h"\n', "may not include"),
    ("transport/kv/a.h", '#pragma once\n#include "actors/protocol/decode.h"\n', "may not include"),
    ("actors/decode/a.h", '#pragma once\n#include "transport/mpi/mpi_mover.h"\n', "may not include"),
    ("actors/decode/a.cpp", "#include <boost/asio.hpp>\n", "only"),
    ("runtime/engine/a.cpp", "#include <mpi.h>\n", "only"),
    ("actors/a.cpp", "int x;\n" * 501, "lines; a file"),
    ("actors/a.cpp", "int long_name = 1;" + " " * 90 + "int b;\n", "columns"),
    ("actors/a.cpp", "void f() {\n" + "  g();\n" * 70 + "}\n", "a function of 72 lines"),
    ("actors/a.cpp", "std::mutex m;\n", "one thread"),
    ("actors/a.cpp", "auto t = std::chrono::steady_clock::now();\n", "time comes through"),
    ("actors/a.cpp", "std::unordered_map<int, int> m;\n", "iteration order"),
    ("kernels/a.cpp", "std::vector<int> v;\n", "do not allocate"),
    ("kernels/a.cpp", "float f = std::exp(1.0f);\n", "no libm"),
    ("actors/a.cpp", "switch (x) { default: break; }\n", "has no default"),
    ("actors/a.h", "int x;\n", "#pragma once"),
    ("docs/a.md", "This is a TO" + "DO.\n", "promise"),
    ("docs/a.md", "See /wo" + "rk/main for more.\n", "path of one machine"),
]
GOOD = [
    ("actors/a.cpp", '#include "actors/protocol/decode.h"\n// std::mutex is not used here\nconst char* s = "std::mutex";\n'),
    ("kernels/a.cpp", "void f() {\n" + "  g();\n" * 68 + "}\n"),
    ("launch/a.cpp", "std::mutex m;\n"),
    ("actors/a.cpp", "int f(K k) {\n  switch (k) {\n" + "    case K::a:\n" * 80 + "      return 1;\n  }\n}\n"),
]


def self_test():
    failed = 0
    with tempfile.TemporaryDirectory():
        for path, text, expected in SELF_TESTS:
            found = [what for _, what in faults_of(path, text)]
            if not any(expected in what for what in found):
                print(f"self-test: {path!r} should give '{expected}', gave {found}")
                failed += 1
        for path, text in GOOD:
            found = list(faults_of(path, text))
            if found:
                print(f"self-test: {path!r} should pass, gave {found}")
                failed += 1
    print(f"{len(SELF_TESTS) + len(GOOD) - failed} passed, {failed} failed")
    return failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    count, faults = check_tree(sys.argv[1])
    print("\n".join(faults[:200]))
    print(f"{count} files, {len(faults)} faults")
    sys.exit(1 if faults or count == 0 else 0)


if __name__ == "__main__":
    main()
