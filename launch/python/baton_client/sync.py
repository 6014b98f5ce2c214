"""The synchronous client: a thread serves the socket, callers wait on conditions."""

from __future__ import annotations

import threading
import time
from typing import Any, Iterator, Optional, Sequence

import zmq

from .groups import Group
from .session import Job, Session
from .sockets import Connection
from .types import BatonError, Finished, Model, Part, Request, Result, Status


class Stream:
    """One job. Iterate over it for the parts; `result` waits for the end."""

    def __init__(self, client: "Client", job: Job):
        self._client = client
        self._job = job

    def __iter__(self) -> Iterator[Part]:
        while True:
            part = self.next()
            if part is None:
                break
            yield part
        if self._job.error:
            raise self._job.error

    def next(self, timeout: Optional[float] = None) -> Optional[Part]:
        """The next part; None at the end, or when `timeout` seconds passed without one."""
        with self._client._changed:
            self._client._changed.wait_for(lambda: self._job.parts or self._job.finished, timeout)
            return self._job.parts.popleft() if self._job.parts else None

    @property
    def finished(self) -> bool:
        with self._client._changed:
            return self._job.finished and not self._job.parts

    @property
    def result(self) -> Result:
        """Waits for the end. Raises BatonError if the job was refused or failed."""
        with self._client._changed:
            self._client._changed.wait_for(lambda: self._job.finished)
        if self._job.error:
            raise self._job.error
        assert self._job.result is not None
        return self._job.result

    def cancel(self) -> None:
        self._client._do(lambda session: session.cancel(self._job))


class Client:
    """A session with one server. Thread-safe. Reconnects by itself; streams go on."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:5757", *, name: str = "baton-client-python",
                 connect_timeout: float = 5.0, reconnect_timeout: float = 30.0):  # fmt: skip
        self._session = Session(name)
        self._changed = threading.Condition()
        self._stopping = False
        self._context = zmq.Context()
        try:
            self._connection = Connection(self._context, endpoint, self._session, reconnect_timeout)
        except ValueError:
            self._context.term()
            raise
        self._wake_in = self._context.socket(zmq.PAIR)
        self._wake_out = self._context.socket(zmq.PAIR)
        self._wake_in.bind(f"inproc://wake-{id(self)}")
        self._wake_out.connect(f"inproc://wake-{id(self)}")
        self._thread = threading.Thread(target=self._serve, name="baton-client", daemon=True)
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._session.model is not None, connect_timeout)
            if self._session.model is not None:
                return
        self.close()
        text = f"no answer from {endpoint} within {connect_timeout} s; is 'baton serve' running there?"
        raise BatonError("unavailable", text, 1000)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def model(self) -> Model:
        assert self._session.model is not None
        return self._session.model

    def submit(self, request: Optional[Request] = None, **fields: Any) -> Stream:
        """Sends a Request, or one made of keyword arguments."""
        request = request or Request(**fields)
        job = self._do(lambda session: session.submit(request))
        job.changed = self._changed.notify_all  # called with the lock held
        return Stream(self, job)

    def run_all(self, requests: Sequence[Request], *, outstanding: int = 64,
                ordered: bool = False) -> Iterator[Finished]:  # fmt: skip
        """Runs a job of many requests and yields each as it finishes, or in their order.

        Ids must be unique: BatonError (conflict) before anything is sent. At most `outstanding` are
        under way; what the server refuses as busy is sent again when it says. Leaving the iteration
        cancels what is under way.
        """
        return self._run_all(Group(requests, outstanding, ordered))

    def _run_all(self, group: Group) -> Iterator[Finished]:
        try:
            while not group.done:
                with self._changed:
                    while (index := group.due(time.monotonic())) is not None:
                        job = self._session.submit(group.request(index), streamed=False)
                        job.changed = self._changed.notify_all
                        group.started(index, job)
                    self._wake()
                    finished = group.collect(time.monotonic())
                    if not finished:
                        self._changed.wait(group.pause(time.monotonic()))
                yield from finished
        finally:
            for job in group.running():
                self._do(lambda session, job=job: session.cancel(job))

    def status(self, timeout: float = 5.0) -> Status:
        correlation = self._do(lambda session: session.ask_status())
        with self._changed:
            self._changed.wait_for(lambda: correlation in self._session.statuses, timeout)
            status = self._session.take_status(correlation)
        if status is None:
            raise BatonError("unavailable", f"no status within {timeout} s", 1000)
        return status

    def close(self) -> None:
        if self._stopping:
            return
        with self._changed:
            self._stopping = True
            self._wake()
        self._thread.join()
        self._connection.close()
        self._wake_in.close()
        self._wake_out.close()
        self._context.term()

    def _do(self, action: Any) -> Any:
        with self._changed:
            value = action(self._session)
            self._wake()
        return value

    def _wake(self) -> None:
        try:
            self._wake_out.send(b"", zmq.DONTWAIT)
        except zmq.Again:
            pass  # enough wake-ups are on their way

    def _serve(self) -> None:
        connection = self._connection
        while not self._stopping:
            ready, _, _ = zmq.select([connection.socket, connection.monitor, self._wake_in], [], [], 0.2)
            with self._changed:
                if self._wake_in in ready:
                    self._wake_in.recv()
                connection.turn()
                self._changed.notify_all()
