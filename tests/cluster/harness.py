"""Real clusters for tests: starts `baton serve` under mpirun (or alone), finds its ranks, ends it.

Everything listens on loopback and takes free ports. Only processes that were started here are ended.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "launch" / "python"))

from baton_client import BatonError, Client  # noqa: E402, F401

BATON = os.environ.get("BATON_BINARY", str(ROOT / "build" / "release" / "launch" / "baton"))
REAL_MODEL = os.environ.get("BATON_MODEL", "")


def tiny_model(*arguments):
    """The path of a tiny model, made once per set of arguments."""
    folder = Path(os.environ.get("BATON_TEST_FILES", ROOT / "build" / "test-files"))
    folder.mkdir(parents=True, exist_ok=True)
    name = "tiny" + "".join(arguments).replace("/", "_").replace("--", "-")
    path = folder / f"{name}.gguf"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        maker = ROOT / "tests" / "oracle" / "data" / "make_tiny.py"
        subprocess.run([sys.executable, str(maker), str(draft), *arguments], check=True,
                       stdout=subprocess.DEVNULL)
        draft.rename(path)
    return str(path)


# Steps of this length keep a request under way however fast the machine is: 300 tokens take 1.5 s.
SLOW_STEPS = ("--min-step-us", "5000")


def wait_for(condition, seconds, what):
    """Polls until `condition()` is true; returns how long that took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return time.monotonic() - start


def wait_for_value(read, seconds):
    """What `read()` gives when it has not changed for two beats of the workers, at most `seconds` on."""
    value, since, start = read(), time.monotonic(), time.monotonic()
    while time.monotonic() - since < 1.1 and time.monotonic() - start < seconds:
        time.sleep(0.05)
        if (new := read()) != value:
            value, since = new, time.monotonic()
    return value


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Cluster:
    """`ranks` 1: one process; otherwise mpirun -np ranks. A context manager."""

    def __init__(self, model, ranks=3, arguments=(), environment=None, launcher=None,
                 endpoint="tcp://127.0.0.1:*"):  # fmt: skip
        self._folder = tempfile.TemporaryDirectory(prefix="baton-test-")
        self._ready = Path(self._folder.name) / "ready"
        self._log = open(Path(self._folder.name) / "log", "wb+")
        serve = [BATON, "serve", "--model", model, "--client-endpoint", endpoint,
                 "--ready-file", str(self._ready), *arguments]
        if launcher is None:
            launcher = ["mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
            if os.getuid() == 0:
                launcher.insert(1, "--allow-run-as-root")
        command = serve if ranks == 1 else [*launcher, *serve]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log,
                                        stderr=self._log, env={**os.environ, **(environment or {})})
        try:
            wait_for(lambda: self._ready.exists() or self.process.poll() is not None, 120, "ready")
        except AssertionError:
            self.stop()
            raise AssertionError("the cluster was not ready in time:\n" + self.log()) from None
        if not self._ready.exists():
            raise AssertionError("the cluster did not start:\n" + self.log())
        lines = self._ready.read_text().split()
        fields = dict(line.split("=", 1) for line in lines)
        self.endpoint, self.control_pid = fields["endpoint"], int(fields["pid"])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is not None:
            sys.stderr.write("---- log of the cluster ----\n" + self.log() + "\n")
        self._log.close()
        self._folder.cleanup()

    def client(self, **options):
        return Client(self.endpoint, **options)

    def log(self):
        self._log.flush()
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-20000:]

    def rank_pid(self, rank):
        """The process of a rank of this cluster, found by what mpirun put into its environment."""
        for child in descendants(self.process.pid):
            try:
                environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment and b"serve" in command:
                return child
        raise AssertionError(f"rank {rank} has no process")

    def kill_rank(self, rank, number=signal.SIGKILL):
        os.kill(self.rank_pid(rank), number)

    def stop(self, seconds=20):
        """Ends it in order; by force after `seconds`. Returns the exit status."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        if self.process.poll() is None:
            try:
                os.kill(getattr(self, "control_pid", self.process.pid), signal.SIGTERM)
                self.process.wait(seconds)
            except (OSError, subprocess.TimeoutExpired):
                pass
        for pid in pids:
            if alive(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        self.process.wait(10)
        return self.process.returncode


def descendants(pid):
    """All processes below `pid`, children first."""
    children = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def idle(status):
    """Everything that requests hold is free again."""
    return (
        not any(status.requests.values())
        and all(w.slots_free == w.slots and w.blocks_free == w.blocks for w in status.workers if w.alive)
        and all(count == 0 for name, count in status.leases.items() if name != "free")
    )
