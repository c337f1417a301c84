"""A channel to planners that is patient: what finds no planner is asked again until its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import grpc
from penstock.channel import Security, explain_no_connection, options_of, target_of
from penstock.errors import DeadlineExceeded, PenstockError, Unavailable, error_of, standby_of
from penstock.methods import Method, Request, Response

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Patience:
    """How long something that finds no planner is tried: until `seconds` are over, with growing pauses."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE
        self._failure: Unavailable | None = None

    @property
    def waits_for_connection(self) -> bool:
        """Whether the next try waits for a planner. The first does not: that nobody listens is then known, and said in the end."""
        return self._failure is not None

    def left(self) -> float:
        """Seconds."""
        return max(0.0, self._end - time.monotonic())

    def pause_after(self, failure: PenstockError) -> float:
        """Seconds to wait before the next try. Raises what is the end of it: a failure that another try would not mend, or, when
        the time is over, that there was no planner."""
        if isinstance(failure, DeadlineExceeded) and self._failure is not None:
            raise self._failure
        if not isinstance(failure, Unavailable):
            raise failure
        self._failure = failure
        return self.pause_before_another(failure)

    def pause_before_another(self, failure: PenstockError) -> float:
        """Seconds to wait before another try. Raises `failure` when the time is over before it."""
        if self._pause >= self.left():
            raise failure
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return pause


class Explanations:
    """Why there is no connection, asked every five seconds at most."""

    _EVERY = 5.0

    def __init__(self, addresses: str, security: Security) -> None:
        self._addresses, self._security = addresses, security
        self._next = 0.0

    def are_due(self, failure: PenstockError) -> bool:
        """Whether explain() should be called now: it takes a second or so."""
        now = time.monotonic()
        if not self._security.authority or not isinstance(failure, Unavailable) or now < self._next:
            return False
        self._next = now + self._EVERY
        return True

    def explain(self) -> None:
        """Raises Unavailable where certificates are the reason, which another try would not mend."""
        if why := explain_no_connection(self._addresses, self._security):
            raise Unavailable(grpc.StatusCode.UNAVAILABLE, why)


_Message_co = TypeVar("_Message_co", covariant=True)


class Stream(Protocol[_Message_co]):
    """A call whose answers are read one by one."""

    def __next__(self) -> _Message_co: ...
    def __iter__(self) -> Iterator[_Message_co]: ...
    def cancel(self) -> Any: ...


class Connection:
    """Calls with a deadline each. `leader`: of several planners the one that leads is asked, which has the jobs."""

    def __init__(self, addresses: str, *, leader: bool, security: Security, timeout: float) -> None:
        credentials = security.credentials()
        target, options = target_of(addresses), options_of(addresses, leader, security)
        self.timeout = timeout
        self._explanations = Explanations(addresses, security)
        self._methods: dict[str, Any] = {}
        self._channel = (
            grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target, options)
        )

    def close(self) -> None:
        self._channel.close()

    def call(self, method: Method[Request, Response], request: Request, timeout: float | None = None) -> Response:
        """The answer. Raises a PenstockError; Unavailable only when the time is over, or certificates are the reason."""
        patience = Patience(self.timeout if timeout is None else timeout)
        while True:
            try:
                response: Response
                response, ended = self._callable(method).with_call(
                    request, timeout=patience.left(), wait_for_ready=patience.waits_for_connection
                )
                standby = standby_of(ended.trailing_metadata())
                if standby is None:
                    return response
                failure: PenstockError = standby
            except grpc.RpcError as error:
                failure = error_of(error)
            if self._explanations.are_due(failure):
                self._explanations.explain()
            time.sleep(patience.pause_after(failure))

    def stream(self, method: Method[Request, Response], request: Request, *, waits: bool) -> Stream[Response]:
        """Opens a stream without waiting for a planner; errors come when it is read. `waits`: that there is none is no error."""
        call: Any = self._channel.unary_stream(
            method.path, request_serializer=method.serialize, response_deserializer=method.parse
        )
        opened: Stream[Response] = call(request, wait_for_ready=waits)
        return opened

    def _callable(self, method: Method[Request, Response]) -> Any:
        if method.name not in self._methods:
            self._methods[method.name] = self._channel.unary_unary(
                method.path, request_serializer=method.serialize, response_deserializer=method.parse
            )
        return self._methods[method.name]


def next_of(stream: Stream[Response], seconds: float) -> Response:
    """The stream's next message. Raises StopIteration at its end, DeadlineExceeded where none comes in `seconds` (the stream is
    then over), and what else ended it."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        stream.cancel()

    timer = threading.Timer(max(0.0, seconds), give_up)
    timer.daemon = True
    timer.start()
    try:
        return next(stream)
    except grpc.RpcError as error:
        if late.is_set():
            raise DeadlineExceeded(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing came in {seconds:.3g} s") from None
        raise error_of(error) from None
    finally:
        timer.cancel()
