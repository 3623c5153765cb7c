"""What the queue server allows a client, and all of them together. There is a limit on everything."""

from __future__ import annotations

from dataclasses import dataclass

from ..safety import check_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Sizes, numbers and times; told at the start of a server, and in `stats settings`.

    max_connections         clients at a time; one more is told so, and its connection is closed
    max_queues              queues in the directory; no more are created by clients
    max_line_bytes          a command without its data; a client with a longer one loses its connection
    max_key_bytes           the name of a queue with its options
    max_item_bytes          the data of an item
    max_arriving_bytes      data of items that have arrived in part, of all clients together
    max_open_reads          items of a queue that a client may have open by `get NAME/open`
    max_monitored_items     and by `monitor`
    max_wait_seconds        a `get` with a longer time, or a `monitor`, ends after this
    input_buffer_bytes      requests behind one that waits; then no more are read
    output_buffer_bytes     answers that a client has not taken; then nothing more is read from it
    handshake_seconds       how long a client may take to set up TLS, and to show its token
    command_seconds         how long a request may take from its first byte to its last
    answer_seconds          how long a client may leave its answers where they are, once the buffer is full
    idle_seconds            how long a client may say nothing at all
    stop_seconds            how long clients have to take their last answers when the server stops
    keep_free_bytes         space on the disk that is left for taking items out: nothing is put when there is less. No
                            more than a sixteenth of the most that was free since the start
    retry_seconds           how long a queue whose disk has failed takes nothing more
    sweep_seconds           how often what has expired is removed from the heads of queues that nobody asks for items
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
