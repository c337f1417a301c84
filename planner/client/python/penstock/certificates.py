"""What is wrong with certificates, in words: gRPC says "Socket closed" or "certificate verify failed", and tries again."""

from __future__ import annotations

import re
import socket
import ssl
import time
from datetime import datetime, timezone
from pathlib import Path

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _CONTEXT_0, _UTC_TIME = 0x30, 0xA0, 0x17
# Of a handshake that is tried to learn what is wrong.
_LIMIT = 1.0
# The planner speaks first once it has accepted a certificate.
_FIRST_WORDS = 0.5


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element of a sequence in DER."""
    found, at = [], 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        found.append((tag, der[at : at + length]))
        at += length
    return found


def _time(tag: int, text: bytes) -> datetime:
    # Years of two digits are those from 1950 on (RFC 5280), for Python from 1969 on: no certificate is as old.
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=timezone.utc)


def _dates(pem: str) -> tuple[datetime, datetime]:
    """From when until when one certificate is valid."""
    certificate = _elements(ssl.PEM_cert_to_DER_cert(pem))[0][1]
    signed = _elements(_elements(certificate)[0][1])
    # After the version, which may be left out, the number, the algorithm and the issuer (RFC 5280, section 4.1).
    begin, end = _elements(signed[4 if signed[0][0] == _CONTEXT_0 else 3][1])
    return _time(*begin), _time(*end)


def what_is_wrong(path: str, field: str, *, all_of_it: bool) -> str:
    """Of a file of certificates: that it has expired or is not valid yet; "": nothing. `all_of_it`: each of them has to be
    valid, as those of a chain, else one. What cannot be read is gRPC's to judge."""
    now = datetime.now(timezone.utc)
    wrong = []
    try:
        spans = [_dates(one) for one in _PEM.findall(Path(path).read_text(encoding="utf-8"))]
    except (ValueError, IndexError):
        return ""
    for begin, end in spans:
        if now > end:
            wrong.append(f"{field}: {path!r} expired on {end:%Y-%m-%d %H:%M:%S} UTC; renew it")
        elif now < begin:
            wrong.append(f"{field}: {path!r} is not valid before {begin:%Y-%m-%d %H:%M:%S} UTC: is the clock right?")
    if not wrong or (not all_of_it and len(wrong) < len(spans)):
        return ""
    return wrong[0]


def explain_handshake(addresses: str, authority: str, certificate: str, key: str, server_name: str) -> str:
    """Why no connection with planners comes about, where that lies with certificates; "": not with them, or nobody answers. Takes
    a second at most for each address, beside the time that names take to be looked up."""
    own = what_is_wrong(authority, "authority", all_of_it=False)
    if not own and certificate:
        own = what_is_wrong(certificate, "certificate", all_of_it=True)
    if own:
        return own
    context = ssl.create_default_context(cafile=authority)
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(certificate, key)
    for address in addresses.removeprefix("dns:///").split(","):
        said = _explain_one(address.strip(), context, server_name, certificate)
        if said:
            return said
    return ""


def _explain_one(address: str, context: ssl.SSLContext, server_name: str, certificate: str) -> str:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    deadline = time.monotonic() + _LIMIT
    try:
        plain = socket.create_connection((host, int(port)), timeout=_LIMIT)
    except (OSError, ValueError):
        return ""
    with plain:
        plain.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            with context.wrap_socket(plain, server_hostname=server_name or host) as encrypted:
                encrypted.settimeout(max(0.01, min(_FIRST_WORDS, deadline - time.monotonic())))
                if encrypted.recv(1):
                    return ""
                how = "it ends the connection"
        except ssl.SSLCertVerificationError as error:
            return f"the certificate of the planner at {address} is not accepted: {error.verify_message}"
        except TimeoutError:
            return ""
        except ssl.SSLEOFError:
            how = "it ends the connection"
        except ssl.SSLError as error:
            if "ALERT" not in (error.reason or ""):
                return f"the TLS handshake with the planner at {address} fails: {error.reason}"
            how = str(error.reason)
        except OSError:
            how = "it ends the connection"
    whom = f"the certificate {certificate!r}" if certificate else "a caller without a certificate"
    return f"the planner at {address} does not accept {whom}: {how}"
