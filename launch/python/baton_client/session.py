"""The client's side of the protocol without sockets or threads: frames in, frames and events out.

`Client` and `AsyncClient` drive one Session each, under a lock or on an event loop.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Deque, Dict, List, Optional, Sequence

from . import wire
from .types import BatonError, Model, Part, Request, Result, Status


@dataclass
class Job:
    """One job under way. `changed` is called after each change, from whoever drives the session."""

    id: int
    body: list
    changed: Callable[[], None] = lambda: None
    parts: Deque[Part] = field(default_factory=deque)
    prompt_tokens: int = 0
    next_seq: int = 0
    accepted: bool = False
    finished: bool = False
    result: Optional[Result] = None
    error: Optional[BatonError] = None

    def end(self, result: Optional[Result] = None, error: Optional[BatonError] = None) -> None:
        self.result, self.error, self.finished = result, error, True
        self.changed()


class Session:
    """Jobs and their state over one or more connections. Not thread-safe."""

    def __init__(self, name: str):
        self.name = name
        self.token = ""
        self.model: Optional[Model] = None
        self.jobs: Dict[int, Job] = {}
        self.outbox: Deque[wire.Frames] = deque()
        self.statuses: Dict[int, Status] = {}
        self._next_job = 1
        self._next_correlation = 1
        self._beats = 0

    def connected(self) -> None:
        """A connection was made: hello goes in front of everything that waits."""
        self.outbox.appendleft(wire.frames(wire.HELLO, [self.token, self.name]))

    def submit(self, request: Request) -> Job:
        job = Job(self._next_job, wire.submit_body(self._next_job, request))
        self._next_job += 1
        self.jobs[job.id] = job
        self.outbox.append(wire.frames(wire.SUBMIT, job.body))
        return job

    def cancel(self, job: Job) -> None:
        if job.id in self.jobs:
            self.outbox.append(wire.frames(wire.CANCEL, [job.id]))

    def ask_status(self) -> int:
        correlation = self._next_correlation
        self._next_correlation += 1
        self.outbox.append(wire.frames(wire.STATUS_QUERY, [False], correlation))
        return correlation

    def beat(self) -> None:
        self._beats += 1
        self.outbox.append(wire.frames(wire.BEAT, [self._beats]))

    def fail_all(self, error: BatonError) -> None:
        jobs, self.jobs = list(self.jobs.values()), {}
        for job in jobs:
            job.end(error=error)

    def receive(self, parts: Sequence[bytes]) -> None:
        try:
            kind, correlation, body = wire.parse(parts)
        except ValueError:
            return  # not ours; the stream's own sequence numbers find what is missing
        handler = self._HANDLERS.get(kind)
        if handler:
            handler(self, body, correlation)

    def _on_model(self, body: List, _: int) -> None:
        token, model = wire.model_of(body)
        resumed, first = token == self.token, not self.token
        self.token, self.model = token, self.model or model
        if not first:
            self._resume(resumed)

    def _resume(self, same_session: bool) -> None:
        for job in list(self.jobs.values()):
            if same_session and job.accepted:
                self.outbox.append(wire.frames(wire.FETCH, [job.id, job.next_seq]))
            elif job.next_seq == 0:
                self.outbox.append(wire.frames(wire.SUBMIT, job.body))
            else:
                del self.jobs[job.id]
                text = "the server no longer knows this job's session"
                job.end(error=BatonError("unavailable", text))

    def _on_accepted(self, body: List, _: int) -> None:
        job = self.jobs.get(body[0])
        if job:
            job.accepted, job.prompt_tokens = True, body[2]
            job.changed()

    def _on_tokens(self, body: List, _: int) -> None:
        job = self.jobs.get(body[0])
        if not job:
            return
        seq, ids = body[2], body[3]
        if seq > job.next_seq:  # a gap: ask for it
            self.outbox.append(wire.frames(wire.FETCH, [job.id, job.next_seq]))
            return
        if ids and seq + len(ids) <= job.next_seq:
            return  # a repeat
        part = wire.part_of(body, job.next_seq - seq)
        job.next_seq += len(part.ids)
        job.parts.append(part)
        self.outbox.append(wire.frames(wire.ACK, [job.id, job.next_seq, False]))
        job.changed()

    def _on_done(self, body: List, _: int) -> None:
        job = self.jobs.pop(body[0], None)
        if job:
            self.outbox.append(wire.frames(wire.ACK, [job.id, job.next_seq, True]))
            job.end(result=wire.result_of(body))

    def _on_refused(self, body: List, _: int) -> None:
        job = self.jobs.pop(body[0], None)
        if job:
            job.end(error=wire.error_of(body[1]))

    def _on_bad_frame(self, body: List, _: int) -> None:
        # It names no job: it concerns those that were not accepted yet.
        for job in [job for job in self.jobs.values() if not job.accepted]:
            del self.jobs[job.id]
            job.end(error=wire.error_of(body[0]))

    def _on_status(self, body: List, correlation: int) -> None:
        self.statuses[correlation] = wire.status_of(body)

    _HANDLERS = {
        wire.MODEL_REPLY: _on_model,
        wire.ACCEPTED: _on_accepted,
        wire.TOKENS: _on_tokens,
        wire.DONE: _on_done,
        wire.REFUSED: _on_refused,
        wire.BAD_FRAME: _on_bad_frame,
        wire.STATUS_REPLY: _on_status,
    }
