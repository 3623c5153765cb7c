"""The queue server: the queues of a directory for whoever speaks memcache's text protocol, as Kestrel does.

    wire        bytes to requests, and nothing else; `answers` are the lines that go back
    queues      the queues of the directory: opened, deleted, and opened again after a failure
    moving      items that nobody gets: expired ones, and those that failed too often
    space       what is free on the disk, and kept of it
    options     what each queue may be told
    commits     many requests, one write or one sync: the answers wait for it
    connection  a client: its requests in their order, its open reads, its waiting
    commands    what each request does
    figures     what is counted: `stats`, `dump_stats`, Prometheus
    status      whether everything is taken, or nothing but reads
    door        clients that are about to set up TLS
    server      listening, limits, the end

Everything is done by one thread, that of the event loop, but for what has to wait long for the disk.
"""
