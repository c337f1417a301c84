"""Ports for processes that must be told theirs, on the local address."""

import contextlib
import random
import socket

# Below those that a kernel gives to whoever asks for any (32768 and up), so that nobody is given one between here and the process
# that is told of it.
FIRST, LAST = 12000, 29999


def free_ports(count):
    """The first of `count` ports in a row that are free."""
    while True:
        first = random.randint(FIRST, LAST - count)
        with contextlib.ExitStack() as listeners:
            try:
                for port in range(first, first + count):
                    listeners.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return first
            except OSError:
                continue
