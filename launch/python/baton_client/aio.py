"""The asyncio client. All of it belongs to the event loop that entered it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncIterator, List, Optional, Sequence

import zmq

from .groups import Group
from .session import Job, Session
from .sockets import Connection
from .types import BatonError, Finished, Model, Part, Request, Result, Status


class AsyncStream:
    """One job. Iterate over it for the parts; `wait()` gives the result."""

    def __init__(self, client: "AsyncClient", job: Job):
        self._client = client
        self._job = job
        self._event = asyncio.Event()
        job.changed = self._event.set

    async def __aiter__(self) -> AsyncIterator[Part]:
        while True:
            part = await self.next()
            if part is None:
                break
            yield part
        if self._job.error:
            raise self._job.error

    async def next(self) -> Optional[Part]:
        """The next part; None at the end."""
        while not self._job.parts and not self._job.finished:
            self._event.clear()
            await self._event.wait()
        return self._job.parts.popleft() if self._job.parts else None

    async def wait(self) -> Result:
        """Waits for the end. Raises BatonError if the job was refused or failed."""
        while not self._job.finished:
            self._event.clear()
            await self._event.wait()
        if self._job.error:
            raise self._job.error
        assert self._job.result is not None
        return self._job.result

    async def cancel(self) -> None:
        self._client._session.cancel(self._job)
        self._client._connection.turn()


class AsyncClient:
    """A session with one server, as an async context manager. Reconnects; streams go on."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:5757", *, name: str = "baton-client-python",
                 connect_timeout: float = 5.0, reconnect_timeout: float = 30.0):  # fmt: skip
        self._endpoint = endpoint
        self._connect_timeout = connect_timeout
        self._reconnect_timeout = reconnect_timeout
        self._session = Session(name)

    async def __aenter__(self) -> "AsyncClient":
        self._context = zmq.Context()
        try:
            self._connection = Connection(
                self._context, self._endpoint, self._session, self._reconnect_timeout
            )
        except ValueError:
            self._context.term()
            raise
        self._stopping = False
        self._woken = asyncio.Event()
        self._news = asyncio.Condition()
        self._task = asyncio.ensure_future(self._serve())
        try:
            await self._until(lambda: self._session.model is not None, self._connect_timeout)
        except asyncio.TimeoutError:
            text = f"no answer from {self._endpoint} within {self._connect_timeout} s; is 'baton serve' running there?"
            raise BatonError("unavailable", text, 1000) from None
        finally:
            if self._session.model is None:
                await self.close()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    @property
    def model(self) -> Model:
        assert self._session.model is not None
        return self._session.model

    async def submit(self, request: Optional[Request] = None, **fields: Any) -> AsyncStream:
        """Sends a Request, or one made of keyword arguments."""
        stream = AsyncStream(self, self._session.submit(request or Request(**fields)))
        self._connection.turn()
        return stream

    def run_all(self, requests: Sequence[Request], *, outstanding: int = 64,
                ordered: bool = False) -> AsyncIterator[Finished]:  # fmt: skip
        """As Client.run_all, for `async for`."""
        return self._run_all(Group(requests, outstanding, ordered))

    async def _run_all(self, group: Group) -> AsyncIterator[Finished]:
        event = asyncio.Event()
        try:
            while not group.done:
                event.clear()
                while (index := group.due(time.monotonic())) is not None:
                    job = self._session.submit(group.request(index), streamed=False)
                    job.changed = event.set
                    group.started(index, job)
                self._connection.turn()
                finished = group.collect(time.monotonic())
                if not finished:
                    try:
                        await asyncio.wait_for(event.wait(), group.pause(time.monotonic()))
                    except asyncio.TimeoutError:
                        pass
                for entry in finished:
                    yield entry
        finally:
            for job in group.running():
                self._session.cancel(job)
            self._connection.turn()

    async def status(self, timeout: float = 5.0) -> Status:
        correlation = self._session.ask_status()
        self._connection.turn()
        try:
            await self._until(lambda: correlation in self._session.statuses, timeout)
        except asyncio.TimeoutError:
            pass
        status = self._session.take_status(correlation)
        if status is None:
            raise BatonError("unavailable", f"no status within {timeout} s", 1000)
        return status

    async def close(self) -> None:
        self._stopping = True
        self._woken.set()
        await asyncio.gather(self._task, return_exceptions=True)
        self._connection.close()
        self._context.term()

    async def _until(self, condition: Any, timeout: float) -> None:
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(condition), timeout)

    async def _serve(self) -> None:
        loop, woken = asyncio.get_running_loop(), self._woken
        watched: List[int] = []

        def unwatch() -> None:
            while watched:
                loop.remove_reader(watched.pop())
            woken.set()  # for the sockets that take their place

        self._connection.replacing = unwatch
        try:
            while not self._stopping:
                if not watched:
                    watched = [self._connection.socket.fileno(), self._connection.monitor.fileno()]
                    for descriptor in watched:
                        loop.add_reader(descriptor, woken.set)
                timer = loop.call_later(0.2, woken.set)
                await woken.wait()
                timer.cancel()
                woken.clear()
                self._connection.turn()
                async with self._news:
                    self._news.notify_all()
        finally:
            unwatch()
