"""Client of Baton over ZeroMQ: `Client` (threads) and `AsyncClient` (asyncio)."""

from .aio import AsyncClient, AsyncStream
from .sync import Client, Stream
from .types import (
    BatonError,
    Choice,
    Finished,
    Model,
    Part,
    Request,
    Result,
    Status,
    TopToken,
    Usage,
    Worker,
)

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "BatonError",
    "Choice",
    "Client",
    "Finished",
    "Model",
    "Part",
    "Request",
    "Result",
    "Status",
    "Stream",
    "TopToken",
    "Usage",
    "Worker",
]
__version__ = "0.1.0"
