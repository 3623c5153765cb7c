"""The limits of the queue server, for one client and for all together."""

from __future__ import annotations

from dataclasses import dataclass

from ..safety import check_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Sizes, numbers and times; printed at the start of a server, and in `stats settings`.

    max_connections         clients at the same time; others get an error, and their connection is closed
    max_queues              queues in the directory; clients cannot create more
    max_line_bytes          a command without its data; the connection is closed after a longer one
    max_key_bytes           the name of a queue with its options
    max_item_bytes          the data of an item
    max_arriving_bytes      data of partly received items, of all clients together
    max_open_reads          items of a queue that a client may reserve by `get NAME/open`
    max_monitored_items     items of a queue that a client may reserve by `monitor`
    max_wait_seconds        the longest wait of a `get` or `monitor`
    input_buffer_bytes      requests after one that waits; beyond it no more are read
    output_buffer_bytes     answers that a client has not read; beyond it nothing more is read from it
    handshake_seconds       time limit for the TLS handshake and the token
    command_seconds         time limit for receiving a request
    answer_seconds          time limit for a client that does not read its answers, once the buffer is full
    idle_seconds            time limit for an idle client
    stop_seconds            time limit for sending the last answers when the server stops
    keep_free_bytes         free disk space below which no items are added: they need it for their removal. At
                            most a sixteenth of the most that was free since the start
    retry_seconds           how long a queue accepts nothing after its disk has failed
    sweep_seconds           how often expired items are removed from the heads of idle queues
    """

    max_connections: int = 1024
    max_queues: int = 1000
    max_line_bytes: int = 2048
    max_key_bytes: int = 250
    max_item_bytes: int = 1 << 20
    max_arriving_bytes: int = 256 << 20
    max_open_reads: int = 1
    max_monitored_items: int = 1000
    max_wait_seconds: float = 3600.0
    input_buffer_bytes: int = 1 << 18
    output_buffer_bytes: int = 4 << 20
    handshake_seconds: float = 10.0
    command_seconds: float = 60.0
    answer_seconds: float = 60.0
    idle_seconds: float = 7200.0
    stop_seconds: float = 10.0
    keep_free_bytes: int = 16 << 20
    retry_seconds: float = 1.0
    sweep_seconds: float = 1.0

    def __post_init__(self) -> None:
        check_limits(self)
