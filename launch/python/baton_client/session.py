"""The client's side of the protocol without sockets or threads: frames in, frames and events out.

`Client` and `AsyncClient` drive one Session each, under a lock or on an event loop.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

from . import wire
from .types import BatonError, Choice, Model, Part, Request, Result, Status


@dataclass
class Progress:
    """How much of one choice has come."""

    next_seq: int = 0
    text_length: int = 0

    def rest_of(self, choice: Choice, number: int) -> Part:
        """What a lost connection took along of a stream's end."""
        at, length = self.next_seq, self.text_length
        return Part(choice.ids[at:], choice.logprobs[at:], choice.top[at:], choice.text[length:], number)


@dataclass
class Job:
    """One job under way. `changed` is called after each change, from whoever drives the session."""

    id: int
    body: list
    changed: Callable[[], None] = lambda: None
    parts: Deque[Part] = field(default_factory=deque)
    prompt_tokens: int = 0
    streamed: bool = True
    progress: List[Progress] = field(default_factory=lambda: [Progress()])  # per choice
    accepted: bool = False
    cancelled: bool = False
    finished: bool = False
    result: Optional[Result] = None
    error: Optional[BatonError] = None

    def add(self, part: Part) -> None:
        self.progress[part.choice].next_seq += len(part.ids)
        self.progress[part.choice].text_length += len(part.text)
        self.parts.append(part)

    @property
    def begun(self) -> bool:
        return any(choice.next_seq for choice in self.progress)

    def fetch(self) -> list:
        first, *more = [choice.next_seq for choice in self.progress]
        return [self.id, first, more]

    def acknowledge(self, done: bool) -> list:
        first, *more = [choice.next_seq for choice in self.progress]
        return [self.id, first, done, more]

    def end(self, result: Optional[Result] = None, error: Optional[BatonError] = None) -> None:
        self.result, self.error, self.finished = result, error, True
        self.changed()


class Session:
    """Jobs and their state over one or more connections. Not thread-safe.

    A connection starts with hello. Until its answer nothing else is sent; the answer says whether
    the server still knows the jobs, and so what each of them needs.
    """

    def __init__(self, name: str):
        self.name = name
        self.token = ""
        self.model: Optional[Model] = None
        self.jobs: Dict[int, Job] = {}
        self.statuses: Dict[int, Status] = {}
        self._hello: Optional[wire.Frames] = None
        self._greeted = False
        self._outbox: Deque[wire.Frames] = deque()
        self._doubtful: List[Tuple[int, List]] = []
        self._questions: Set[int] = set()
        self._next_job = 1
        self._next_correlation = 1
        self._beats = 0

    def connected(self) -> None:
        self._hello = wire.frames(wire.HELLO, [self.token, self.name])
        self._greeted = False
        self._outbox.clear()  # the greeting brings back what is still needed

    def disconnected(self) -> None:
        self._hello = None
        self._greeted = False
        self._doubtful.clear()

    def first(self) -> Optional[wire.Frames]:
        """What is to be sent next, if anything; `sent` takes it away."""
        if self._hello or not self._greeted:
            return self._hello
        return self._outbox[0] if self._outbox else None

    def sent(self) -> None:
        if self._hello:
            self._hello = None
        else:
            self._outbox.popleft()

    def submit(self, request: Request, streamed: bool = True) -> Job:
        """`streamed` False: the job has no parts, only its result."""
        job = Job(self._next_job, wire.submit_body(self._next_job, request, streamed))
        job.streamed = streamed
        job.progress = [Progress() for _ in range(max(request.n, 1))]
        self._next_job += 1
        self.jobs[job.id] = job
        self._queue(wire.SUBMIT, job.body)
        return job

    def cancel(self, job: Job) -> None:
        if job.id in self.jobs:
            job.cancelled = True
            self._queue(wire.CANCEL, [job.id])

    def ask_status(self) -> int:
        correlation = self._next_correlation
        self._next_correlation += 1
        self._questions.add(correlation)
        self._queue(wire.STATUS_QUERY, [False], correlation)
        return correlation

    def take_status(self, correlation: int) -> Optional[Status]:
        """The answer, if there is one; without one the question is given up."""
        self._questions.discard(correlation)
        return self.statuses.pop(correlation, None)

    def beat(self) -> None:
        self._beats += 1
        self._queue(wire.BEAT, [self._beats])

    def _queue(self, kind: int, body: Sequence, correlation: int = 0) -> None:
        if self._greeted:
            self._outbox.append(wire.frames(kind, body, correlation))

    def fail_all(self, error: BatonError) -> None:
        jobs, self.jobs = list(self.jobs.values()), {}
        for job in jobs:
            job.end(error=error)

    def receive(self, parts: Sequence[bytes]) -> None:
        try:
            kind, correlation, body = wire.parse(parts)
        except ValueError:
            return  # not ours; the stream's own sequence numbers find what is missing
        if kind in (wire.REFUSED, wire.BAD_FRAME):
            self._doubtful.append((kind, body))
        handler = self._HANDLERS.get(kind)
        if handler:
            handler(self, body, correlation)

    def settle(self) -> None:
        """Believes the refusals received so far. To be called when the connection is known to have
        lasted until they came: a connection that ZeroMQ made again by itself knows no session."""
        doubtful, self._doubtful = self._doubtful, []
        for kind, body in doubtful:
            if kind == wire.REFUSED:
                self._refuse(body)
            else:
                self._refuse_unaccepted(body)

    def _on_model(self, body: List, _: int) -> None:
        token, model = wire.model_of(body)
        same_session = token == self.token
        self.token, self.model, self._greeted = token, self.model or model, True
        for job in list(self.jobs.values()):
            self._resume(job, same_session)
        for correlation in sorted(self._questions):
            self._queue(wire.STATUS_QUERY, [False], correlation)

    def _resume(self, job: Job, same_session: bool) -> None:
        """What the server knows is fetched from where it stopped; the rest is sent again."""
        if same_session and job.accepted:
            self._queue(wire.FETCH, job.fetch())
        elif not job.begun:
            self._queue(wire.SUBMIT, job.body)
        else:
            del self.jobs[job.id]
            text = "the server no longer knows this job's session; submit it again"
            return job.end(error=BatonError("unavailable", text, 1000))
        if job.cancelled:
            self._queue(wire.CANCEL, [job.id])

    def _on_accepted(self, body: List, _: int) -> None:
        job = self.jobs.get(body[0])
        if job:
            job.accepted, job.prompt_tokens = True, body[2]
            job.changed()

    def _on_tokens(self, body: List, _: int) -> None:
        job = self.jobs.get(body[0])
        if not job:
            return
        choice, seq, ids = body[1:4]
        if choice >= len(job.progress):
            return
        next_seq = job.progress[choice].next_seq
        if seq > next_seq:  # a gap: ask for it
            self._queue(wire.FETCH, job.fetch())
            return
        if ids and seq + len(ids) <= next_seq:
            return  # a repeat
        job.add(wire.part_of(body, next_seq - seq))
        self._queue(wire.ACK, job.acknowledge(False))
        job.changed()

    def _on_done(self, body: List, _: int) -> None:
        job = self.jobs.pop(body[0], None)
        if not job:
            return
        result = wire.result_of(body)
        for number, choice in enumerate(result.choices[: len(job.progress)] if job.streamed else []):
            rest = job.progress[number].rest_of(choice, number)
            if rest.ids or rest.text:
                job.add(rest)
        self._queue(wire.ACK, job.acknowledge(True))
        job.end(result=result)

    def _refuse(self, body: List) -> None:
        job = self.jobs.pop(body[0], None)
        if job:
            job.end(error=wire.error_of(body[1]))

    def _refuse_unaccepted(self, body: List) -> None:
        # It names no job: it concerns those that were not accepted yet.
        for job in [job for job in self.jobs.values() if not job.accepted]:
            del self.jobs[job.id]
            job.end(error=wire.error_of(body[0]))

    def _on_status(self, body: List, correlation: int) -> None:
        if correlation in self._questions:
            self._questions.remove(correlation)
            self.statuses[correlation] = wire.status_of(body)

    _HANDLERS = {
        wire.MODEL_REPLY: _on_model,
        wire.ACCEPTED: _on_accepted,
        wire.TOKENS: _on_tokens,
        wire.DONE: _on_done,
        wire.STATUS_REPLY: _on_status,
    }
