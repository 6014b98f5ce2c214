"""The asyncio client. All of it belongs to the event loop that entered it."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, List, Optional

import zmq
import zmq.asyncio

from . import sockets
from .session import Job, Session
from .types import BatonError, Model, Part, Request, Result, Status


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
        await self._client._flush()


class AsyncClient:
    """A session with one server, as an async context manager. Reconnects; streams go on."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:5757", *, name: str = "baton-client-python",
                 connect_timeout: float = 5.0, reconnect_timeout: float = 30.0):  # fmt: skip
        self._endpoint = endpoint
        self._connect_timeout = connect_timeout
        self._reconnect_timeout = reconnect_timeout
        self._session = Session(name)
        self._connected = False
        self._tasks: List[asyncio.Task] = []

    async def __aenter__(self) -> "AsyncClient":
        self._context = zmq.asyncio.Context()
        self._socket, self._monitor = sockets.open_socket(self._context, self._endpoint)
        self._news = asyncio.Condition()
        self._sending = asyncio.Lock()
        for work in (self._watch(), self._receive(), self._beat()):
            self._tasks.append(asyncio.ensure_future(work))
        try:
            await self._until(lambda: self._session.model is not None, self._connect_timeout)
        except asyncio.TimeoutError:
            await self.close()
            text = f"no answer from {self._endpoint} within {self._connect_timeout} s; is 'baton serve' running there?"
            raise BatonError("unavailable", text, 1000) from None
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
        await self._flush()
        return stream

    async def status(self, timeout: float = 5.0) -> Status:
        correlation = self._session.ask_status()
        await self._flush()
        try:
            await self._until(lambda: correlation in self._session.statuses, timeout)
        except asyncio.TimeoutError:
            raise BatonError("unavailable", f"no status within {timeout} s", 1000) from None
        return self._session.statuses.pop(correlation)

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.disable_monitor()
        self._socket.close()
        self._context.term()

    async def _until(self, condition: Any, timeout: float) -> None:
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(condition), timeout)

    async def _watch(self) -> None:
        while True:
            event = sockets.event_of(await self._monitor.recv_multipart())
            self._connected = event == sockets.MADE
            if self._connected:
                self._session.connected()
                await self._flush()
            else:
                asyncio.get_running_loop().call_later(self._reconnect_timeout, self._give_up)

    def _give_up(self) -> None:
        if not self._connected:
            text = f"the connection to {self._endpoint} was lost"
            self._session.fail_all(BatonError("unavailable", text, 1000))

    async def _receive(self) -> None:
        while True:
            self._session.receive(await self._socket.recv_multipart())
            await self._flush()
            async with self._news:
                self._news.notify_all()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(sockets.BEAT_SECONDS)
            if self._connected:
                self._session.beat()
                await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            while self._connected and self._session.outbox:
                await self._socket.send_multipart(self._session.outbox.popleft())
