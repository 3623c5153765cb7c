"""The limits of a hub: how much of everything a client may ask for. Printed when it starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Units are last in the names. A message must fit a request, so `request_bytes` is the limit of messages too.

    What a hub holds in memory is at most `buffer_bytes`, and one request and three answers for each call. Where all
    calls are taken, one that was idle for `idle_seconds`, or one of whoever has most, gives up its place (`calls.py`).
    A connection without a call is closed after `unused_seconds`; clients make another one when they need it. That is no
    round number, because a client that sends something every five or ten seconds would always do so at that moment.
    """

    request_bytes: int = 16 << 20
    answer_bytes: int = 1 << 20
    buffer_bytes: int = 128 << 20
    connections: int = 2048
    calls: int = 64
    calls_of_one_connection: int = 16
    requests_in_flight: int = 64
    open_journals: int = 128
    journals: int = 10_000
    header_bytes: int = 8192
    handshake_seconds: float = 10.0
    unused_seconds: float = 7.0
    idle_seconds: float = 1.0
    silence_seconds: float = 30.0
    answer_seconds: float = 30.0
    keepalive_seconds: float = 20.0
    stop_seconds: float = 10.0
