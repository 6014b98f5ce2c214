"""Many requests as one job, without sockets or threads: what to send next, what has ended.

`Client.run_all` and `AsyncClient.run_all` drive one Group each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from .session import Job
from .types import BatonError, Finished, Request


@dataclass
class Waiting:
    index: int
    not_before: float = 0.0


def check_ids(requests: Sequence[Request]) -> List[str]:
    """The requests' ids; BatonError if one appears twice."""
    ids = [request.id or str(index) for index, request in enumerate(requests)]
    seen: Dict[str, int] = {}
    for index, name in enumerate(ids):
        if name in seen:
            raise BatonError(
                "conflict",
                f"requests {seen[name]} and {index} both have the id '{name[:60]}'; ids must be unique",
            )
        seen[name] = index
    return ids


class Group:
    """At most `outstanding` requests are under way; one that is refused as busy waits and goes again."""

    def __init__(self, requests: Sequence[Request], outstanding: int, ordered: bool):
        if outstanding < 1:
            raise ValueError(f"outstanding is {outstanding}; expected 1 or more")
        self._requests = requests
        self._ids = check_ids(requests)
        self._outstanding = outstanding
        self._ordered = ordered
        self._waiting = [Waiting(index) for index in range(len(requests) - 1, -1, -1)]  # next is last
        self._running: Dict[int, Job] = {}
        self._early: Dict[int, Finished] = {}  # that wait for those before them
        self._yielded = 0

    @property
    def done(self) -> bool:
        return self._yielded == len(self._requests)

    def due(self, now: float) -> Optional[int]:
        """The request to send now, if there is one."""
        if len(self._running) >= self._outstanding:
            return None
        for place in range(len(self._waiting) - 1, -1, -1):
            if self._waiting[place].not_before <= now:
                return self._waiting.pop(place).index
        return None

    def started(self, index: int, job: Job) -> None:
        self._running[index] = job

    def request(self, index: int) -> Request:
        return self._requests[index]

    def pause(self, now: float) -> float:
        """Seconds until something can happen by itself."""
        if len(self._running) >= self._outstanding:
            return 1.0
        times = [waiting.not_before - now for waiting in self._waiting]
        return min(max(min(times, default=1.0), 0.001), 1.0)

    def collect(self, now: float) -> List[Finished]:
        """Those that have ended and whose turn it is."""
        for index, job in list(self._running.items()):
            if not job.finished:
                continue
            del self._running[index]
            if job.error and job.error.code == "busy":
                delay = max(job.error.retry_after_ms, 1) / 1000
                self._waiting.append(Waiting(index, now + delay))
                continue
            self._early[index] = Finished(
                self._ids[index], index, self._requests[index], job.result, job.error
            )
        ready = []
        while self._early:
            index = self._yielded + len(ready) if self._ordered else next(iter(self._early))
            if index not in self._early:
                break
            ready.append(self._early.pop(index))
        self._yielded += len(ready)
        return ready

    def running(self) -> List[Job]:
        return list(self._running.values())
