"""How a client reaches planners: the options, addresses and trust of the C++ client (common/grpc/channel.cc)."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import grpc
from penstock.certificates import explain_handshake, what_is_wrong

_MAX_MESSAGE_BYTES = 64 << 20
_LEADER = "penstock.v1.PlannerService/leader"


@dataclass(frozen=True)
class Security:
    """Paths of PEM files and of a token, read when the client is made; "": none.

    authority    who signs the planner's certificate; "": the connection is not encrypted
    certificate  and key: who the client is
    token        a file with a token alone; only on encrypted connections
    server_name  the name in the planner's certificate, where it is not the host of its address
    """

    authority: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""
    server_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate: goes together with key; give both or none")
        if not self.authority and (self.certificate or self.token or self.server_name):
            raise ValueError("authority: is missing; certificates and tokens are sent on encrypted connections only")

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None: not encrypted. Raises OSError for a file that cannot be read, ValueError for an empty token and for a certificate
        that has expired."""
        if not self.authority:
            return None
        for path, field in ((self.authority, "authority"), (self.certificate, "certificate")):
            if path and (wrong := what_is_wrong(path, field, all_of_it=field == "certificate")):
                raise ValueError(wrong)
        made = grpc.ssl_channel_credentials(
            Path(self.authority).read_bytes(),
            Path(self.key).read_bytes() if self.key else None,
            Path(self.certificate).read_bytes() if self.certificate else None,
        )
        if not self.token:
            return made
        token = Path(self.token).read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"token: the file {self.token} is empty")
        return grpc.composite_channel_credentials(made, grpc.access_token_call_credentials(token))


def explain_no_connection(addresses: str, security: Security) -> str:
    """Why there is none, where that lies with certificates; "": not with them, or not known. Takes a second or so."""
    if not security.authority:
        return ""
    try:
        return explain_handshake(
            addresses, security.authority, security.certificate, security.key, security.server_name
        )
    except (OSError, ValueError):
        return ""


def names_several(addresses: str) -> bool:
    """Whether `addresses` may name several planners: a list, or a name of gRPC's own, "dns:///planners:7070"."""
    return "," in addresses or "://" in addresses


def target_of(addresses: str) -> str:
    """gRPC's target. Names in a list are looked up now. Raises ValueError for what is no "host:port", OSError where no name of
    a list is known."""
    if "://" in addresses:
        return addresses
    parts = [part.strip() for part in addresses.split(",")]
    for part in parts:
        host, colon, port = part.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"addresses: {part!r} is no host:port")
    if len(parts) == 1:
        return parts[0]
    found: list[tuple[str, str, bool]] = []
    failure: OSError | None = None
    for part in parts:
        host, _, port = part.rpartition(":")
        try:
            for family, _, _, _, where in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
                found.append((str(where[0]), port, family == socket.AF_INET6))
        except OSError as error:
            failure = error
    if not found:
        raise failure or OSError(f"addresses: nothing is known of {addresses!r}")
    # A target is of one version: beside version 6, addresses of version 4 are written as such.
    if any(six for _, _, six in found):
        texts = [f"%5B{'' if six else '::ffff:'}{ip}%5D:{port}" for ip, port, six in found]
        return "ipv6:" + ",".join(dict.fromkeys(texts))
    return "ipv4:" + ",".join(dict.fromkeys(f"{ip}:{port}" for ip, port, _ in found))


def options_of(addresses: str, leader: bool, security: Security) -> list[tuple[str, str | int]]:
    """The channel's arguments. `leader`: of several planners only the one that leads is asked."""
    several = names_several(addresses)
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        # A planner whose host is gone is noticed while a stream waits for it: common/grpc/limits.h, sooner among several.
        ("grpc.keepalive_time_ms", 2_000 if several else 10_000),
        ("grpc.keepalive_timeout_ms", 3_000 if several else 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if several:
        health = f', "healthCheckConfig": {{"serviceName": "{_LEADER}"}}' if leader else ""
        options += [
            ("grpc.min_reconnect_backoff_ms", 5_000),
            ("grpc.service_config", f'{{"loadBalancingConfig": [{{"round_robin": {{}}}}]{health}}}'),
        ]
    if security.server_name:
        options.append(("grpc.ssl_target_name_override", security.server_name))
    return options
