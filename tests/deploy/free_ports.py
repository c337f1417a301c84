"""Ports for processes that must be told theirs, on the local address."""

import socket


def free_ports(count):
    """The first of `count` ports in a row that are free."""
    while True:
        listeners = [socket.socket() for _ in range(count)]
        try:
            listeners[0].bind(("127.0.0.1", 0))
            first = listeners[0].getsockname()[1]
            for offset in range(1, count):
                listeners[offset].bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for listener in listeners:
                listener.close()
