"""The queue server: serves the queues of a directory by memcache's text protocol, as Kestrel does.

    server      listening, shutdown, the status, and what is refused
    tls         clients in a TLS handshake
    connection  a client: its requests in order
    parser      bytes to requests; `answers` has the lines sent back
    commands    what each request other than `set` and `get` does
    reads       how a client gets items: `get`, waits, reserved items
    lane        the fast path for the simplest requests; `commits` has one write or sync for many requests
    queues      the queues of the directory: opened, deleted, and reopened after a failure
    sweeper     items that leave a queue by themselves: expired ones, and those that failed too often
    space       free space on the disk, and the reserve
    limits      the limits of the server, and of each queue
    stats       counters: `stats`, `dump_stats`, Prometheus

One thread, that of the event loop, does everything except long waits for the disk.
"""
