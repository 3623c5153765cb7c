"""The queue server: serves the queues of a directory by memcache's text protocol, as Kestrel does.

    server      listening, TLS handshakes, slow clients, shutdown
    commands    what each request does
    connection  a client: its requests in order
    reads       how a client gets items: `get`, waits, reserved items
    stats       the statistics: `stats`, `dump_stats`, Prometheus
    service     what clients share: the queues, counters, the status, and what is refused
    upkeep      items that leave a queue by themselves, and free space on the disk
    commits     one write or sync for many requests
    lane        the fast path for the simplest requests, and the state of a client
    queues      the queues of the directory: opened, deleted, and reopened after a failure
    parser      bytes to requests; `answers` has the lines sent back
    limits      the limits of the server, and of each queue

A module imports only modules that are further down. One thread, that of the event loop, does everything except long
waits for the disk.
"""
