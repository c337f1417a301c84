"""Connection, for asyncio. Of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
from penstock.channel import Security, options_of, target_of
from penstock.connection import Explanations, Patience
from penstock.errors import DeadlineExceeded, PenstockError, error_of, standby_of
from penstock.methods import Method, Request, Response


class AsyncConnection:
    """See Connection."""

    def __init__(self, addresses: str, *, leader: bool, security: Security, timeout: float) -> None:
        credentials = security.credentials()
        target, options = target_of(addresses), options_of(addresses, leader, security)
        self.timeout = timeout
        self._explanations = Explanations(addresses, security)
        self._methods: dict[str, Any] = {}
        self._channel = (
            grpc.aio.secure_channel(target, credentials, options)
            if credentials
            else grpc.aio.insecure_channel(target, options)
        )

    async def close(self) -> None:
        await self._channel.close(None)

    async def call(self, method: Method[Request, Response], request: Request, timeout: float | None = None) -> Response:
        """See Connection.call. One that is cancelled ends its work at the planner."""
        patience = Patience(self.timeout if timeout is None else timeout)
        while True:
            try:
                asked = self._callable(method)(
                    request, timeout=patience.left(), wait_for_ready=patience.waits_for_connection
                )
                response: Response = await asked
                standby = standby_of(await asked.trailing_metadata())
                if standby is None:
                    return response
                failure: PenstockError = standby
            except grpc.aio.AioRpcError as error:
                failure = error_of(error)
            if self._explanations.are_due(failure):
                await asyncio.to_thread(self._explanations.explain)
            await asyncio.sleep(patience.pause_after(failure))

    def stream(self, method: Method[Request, Response], request: Request, *, waits: bool) -> AsyncGenerator[Response, None]:
        """The messages of a stream; next_of reads one. Opened when it is first read, cancelled when it is closed. `waits`: that there
        is no planner is no error."""
        call: Any = self._channel.unary_stream(
            method.path, request_serializer=method.serialize, response_deserializer=method.parse
        )

        async def messages() -> AsyncGenerator[Response, None]:
            opened = call(request, wait_for_ready=waits)
            try:
                async for message in opened:
                    yield message
            finally:
                opened.cancel()

        return messages()

    def _callable(self, method: Method[Request, Response]) -> Any:
        if method.name not in self._methods:
            self._methods[method.name] = self._channel.unary_unary(
                method.path, request_serializer=method.serialize, response_deserializer=method.parse
            )
        return self._methods[method.name]


async def next_of(stream: AsyncIterator[Response], seconds: float) -> Response:
    """The stream's next message. Raises StopAsyncIteration at its end, DeadlineExceeded where none comes in `seconds` (the
    stream is then over), and what else ended it."""
    try:
        return await asyncio.wait_for(anext(stream), max(0.0, seconds))
    except TimeoutError:
        raise DeadlineExceeded(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing came in {seconds:.3g} s") from None
    except grpc.aio.AioRpcError as error:
        raise error_of(error) from None
