"""The ZeroMQ socket that both clients use, and the events of its monitor."""

from __future__ import annotations

from typing import Tuple

import zmq
from zmq.utils.monitor import parse_monitor_message

MADE = zmq.EVENT_HANDSHAKE_SUCCEEDED
LOST = zmq.EVENT_DISCONNECTED
BEAT_SECONDS = 2.0


def open_socket(context: zmq.Context, endpoint: str) -> Tuple[zmq.Socket, zmq.Socket]:
    """The socket and its monitor, which is attached first: the first connection must be seen."""
    socket = context.socket(zmq.DEALER)
    socket.linger = 200
    socket.immediate = 1  # while disconnected, messages wait with us: hello must be first
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
        raise ValueError(f"'{endpoint}' is not an endpoint such as tcp://127.0.0.1:5757: {error}")
    return socket, monitor


def event_of(parts: list) -> int:
    return parse_monitor_message(parts)["event"]
