"""Benchmarks against peers: `python -m benchmarks`, one script per subject.

Machines are noisy, so no figure stands alone. Each is a ratio to a peer or a limit that was measured in the same run,
in alternation with Logwright; the result is the median of at least three rounds. Code that never waits is measured in
CPU time. A message has a 13-byte key and a 100-byte value: 139 bytes in sej.
"""
