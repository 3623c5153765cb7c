"""The queue server: serves the queues of a directory by memcache's text protocol, as Kestrel does.

    wire        parses bytes into requests; `answers` has the lines sent back
    queues      the queues of the directory: opened, deleted, and opened again after a failure
    moving      items that leave a queue by themselves: expired ones, and those that failed too often
    space       free space on the disk, and the reserve
    options     the limits of each queue
    commits     one write or sync for many requests: the answers wait for it
    connection  a client: its requests in order, its open reads, its waits
    commands    what each request does
    figures     counters: `stats`, `dump_stats`, Prometheus
    status      whether the server accepts all requests, or only reads
    door        clients in a TLS handshake
    server      listening, limits, shutdown

One thread, that of the event loop, does everything except long waits for the disk.
"""
