"""The connection that both clients use: a ZeroMQ socket, the events of its monitor, a session."""

from __future__ import annotations

import time
from typing import Any, Callable, Tuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from .session import Session
from .types import BatonError

MADE = zmq.EVENT_HANDSHAKE_SUCCEEDED
LOST = zmq.EVENT_DISCONNECTED
BEAT_SECONDS = 2.0


class Connection:
    """Owns socket and monitor and moves frames between them and the session. Not thread-safe.

    A socket serves one connection: hello must be the first thing that the server hears, so what
    waits in a socket whose connection is lost is thrown away with it. (ZMQ_IMMEDIATE would do that
    too, but libzmq aborts the process when such a socket loses its connection amid the parts of a
    message.) `replacing` is called before socket and monitor are replaced.
    """

    def __init__(self, context: zmq.Context, endpoint: str, session: Session, reconnect_timeout: float):
        self._context = context
        self._endpoint = endpoint
        self._session = session
        self._reconnect_timeout = reconnect_timeout
        self._connected = False
        self._lost_at = self._beaten_at = time.monotonic()
        self.replacing: Callable[[], None] = lambda: None
        self.socket, self.monitor = _open(context, endpoint)

    def turn(self) -> None:
        """Takes what has come and sends what waits. To be called after events and now and then."""
        self._turn()
        while self.socket.events & zmq.POLLIN:  # came while something was sent
            self._turn()

    def _turn(self) -> None:
        self._receive()
        self._watch()
        self._session.settle()
        now = time.monotonic()
        if not self._connected:
            if now - self._lost_at > self._reconnect_timeout:
                text = f"the connection to {self._endpoint} was lost for {self._reconnect_timeout} s"
                self._session.fail_all(BatonError("unavailable", text, 1000))
            return
        if now - self._beaten_at > BEAT_SECONDS:
            self._beaten_at = now
            self._session.beat()
        self._send()

    def close(self, linger: int = 200) -> None:
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close(linger)

    def _watch(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self.monitor.recv_multipart(zmq.DONTWAIT))["event"]
            except zmq.Again:
                return
            if event == MADE:
                self._connected = True
                self._session.connected()
            elif self._connected:
                self._receive()  # streams go on behind what the connection still brought
                self._connected = False
                self._session.disconnected()
                self._lost_at = time.monotonic()
                self.replacing()
                self.close(linger=0)
                self.socket, self.monitor = _open(self._context, self._endpoint)

    def _receive(self) -> None:
        while True:
            try:
                self._session.receive(self.socket.recv_multipart(zmq.DONTWAIT))
            except zmq.Again:
                return

    def _send(self) -> None:
        while parts := self._session.first():
            try:
                self.socket.send_multipart(parts, zmq.DONTWAIT)
            except zmq.Again:
                return
            self._session.sent()


def _open(context: Any, endpoint: str) -> Tuple[zmq.Socket, zmq.Socket]:
    """The monitor is attached first: the first connection must be seen."""
    socket = context.socket(zmq.DEALER)
    socket.linger = 200
    socket.reconnect_ivl = 20  # the server waits half a second for a client that comes back
    socket.reconnect_ivl_max = 1000
    socket.setsockopt(zmq.HANDSHAKE_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
    socket.setsockopt(zmq.MAXMSGSIZE, 64 << 20)
    monitor = socket.get_monitor_socket(MADE | LOST)
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        socket.disable_monitor()
        monitor.close()
        socket.close()
        raise ValueError(
            f"'{endpoint}' is not an endpoint such as tcp://127.0.0.1:5757: {error}"
        ) from None
    return socket, monitor
