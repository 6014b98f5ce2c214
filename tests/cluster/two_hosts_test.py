"""A cluster on two hosts: network namespaces of this machine, joined by a virtual cable.

Needs root and iproute2. The links between ranks are encrypted there; the cable can be cut.
"""

import os
import shutil
import subprocess
import sys
import unittest

import harness

NAMES = (f"baton-a-{os.getpid()}", f"baton-b-{os.getpid()}")
ADDRESSES = ("198.51.100.1", "198.51.100.2")
AGENT = str(harness.ROOT / "tests" / "cluster" / "netns_agent")


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Cable:
    """Two namespaces and the cable between them. A context manager."""

    def __enter__(self):
        try:
            for name in NAMES:
                ip("netns", "add", name)
            ends = [f"bt{os.getpid() % 100000}{end}" for end in "ab"]
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for name, end, address in zip(NAMES, ends, ADDRESSES):
                ip("link", "set", end, "netns", name)
                ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", end, "up")
            self.end = ends[1]
        except BaseException:
            self.__exit__()
            raise
        return self

    def cut(self):
        ip("-n", NAMES[1], "link", "set", self.end, "down")

    def __exit__(self, *_):
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def usable():
    if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    probe = f"baton-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode == 0
    if made:
        ip("netns", "del", probe)
    return made


class TwoHosts(harness.Cluster):
    """Ranks 0 to 2 on the first host (control, prefill, decode), 3 and 4 (decode) on the second."""

    def __init__(self, model, *arguments):
        hosts = f"{ADDRESSES[0]}:3,{ADDRESSES[1]}:2"
        network = f"{ADDRESSES[0]}/24"
        launcher = [
            "ip", "netns", "exec", NAMES[0], "unshare", "--uts", "bash", "-c",
            f"hostname {NAMES[0]}; exec \"$@\"", "-", "mpirun", "--allow-run-as-root", "--enable-recovery",
            "--oversubscribe", "--bind-to", "none", "--host", hosts, "--mca", "plm_rsh_agent", AGENT,
            "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", network,
            "--mca", "btl_tcp_if_include", network, "-x", "BATON_TEST_HOSTS", "-np", "5",
        ]  # fmt: skip
        hosts_map = " ".join(f"{address}={name}" for address, name in zip(ADDRESSES, NAMES))
        super().__init__(model, ranks=5, arguments=arguments, launcher=launcher,
                         environment={"BATON_TEST_HOSTS": hosts_map})


# The control rank's endpoint is loopback of its namespace, so the asking is done in there.
ASK = """
import json, sys
sys.path[:0] = [sys.argv[2], sys.argv[3]]
import harness
from baton_client import Client
requests = json.loads(sys.argv[4])
with Client(sys.argv[1]) as client:
    streams = [client.submit(**r) for r in requests]
    first = [s.next() for s in streams]
    print("streaming", flush=True)
    results = [s.result for s in streams]
    print(json.dumps([[r.ids, r.logprobs, r.usage.attempts, r.usage.decode_rank] for r in results]), flush=True)
    harness.wait_for(lambda: harness.idle(client.status()), 15, "idle")
"""


def asking(endpoint, requests, inside):
    import json

    command = [sys.executable, "-c", ASK, endpoint, str(harness.ROOT / "tests/cluster"),
               str(harness.ROOT / "launch/python"), json.dumps(requests)]  # fmt: skip
    if inside:
        command = ["ip", "netns", "exec", NAMES[0], *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answers(process):
    import json

    output = process.communicate(timeout=120)[0]
    if process.returncode != 0:
        raise AssertionError("the client failed")
    return json.loads(output.strip().split("\n")[-1])


@unittest.skipUnless(usable(), "needs root, iproute2 and network namespaces")
class OnTwoHosts(unittest.TestCase):
    REQUESTS = [dict(ids=[(7 * n + 3 * i) % 500 + 3 for i in range(4 + 11 * n)], max_tokens=300, ignore_eos=True,
                     top_logprobs=0, seed=n, temperature=0.8 * (n % 2)) for n in range(9)]  # fmt: skip

    def alone(self, model):
        with harness.Cluster(model, ranks=1) as cluster:
            return answers(asking(cluster.endpoint, self.REQUESTS, inside=False))

    def test_two_hosts_give_the_same_bits_as_one_process(self):
        model = harness.tiny_model("--type", "Q4_1")
        expected = self.alone(model)
        with Cable(), TwoHosts(model, "--prefill-ranks", "1") as cluster:
            got = answers(asking(cluster.endpoint, self.REQUESTS, inside=True))
            self.assertEqual([g[:2] for g in got], [e[:2] for e in expected])
            self.assertGreater(len({g[3] for g in got} & {3, 4}), 0, "nothing was decoded on the second host")

    def test_T34_a_host_that_is_cut_off_costs_a_pause(self):
        model = harness.tiny_model("--type", "Q4_1")
        expected = self.alone(model)
        with Cable() as cable, TwoHosts(model, "--prefill-ranks", "1", *harness.SLOW_STEPS) as cluster:
            process = asking(cluster.endpoint, self.REQUESTS, inside=True)
            self.assertEqual(process.stdout.readline().strip(), "streaming")
            cable.cut()
            got = answers(process)
            self.assertEqual([g[:2] for g in got], [e[:2] for e in expected])


if __name__ == "__main__":
    unittest.main()
