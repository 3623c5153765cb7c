"""The metrics are valid for Prometheus, whatever names clients choose."""

from __future__ import annotations

import re
from pathlib import Path

from logwright.servers.queue.stats import QueueMetrics
from tests.servers.queue.support import Client, serving

NAMES = {
    b"a\xff": "a~ff",
    b"a\xfe": "a~fe",
    b'a"b': 'a\\"b',
    b"a\\b": "a\\\\b",
    b"a\\xff": "a\\\\xff",
    "ä".encode(): "ä",
}
SAMPLE = re.compile(r'([a-z_]+(?:\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"\})?) [0-9.]+')


def test_each_queue_has_its_own_label(tmp_path: Path) -> None:
    with serving(tmp_path) as served, Client(served) as client:
        for name in NAMES:
            assert client.ask(b"set %b 0 0 3\r\nabc\r\n" % name) == b"STORED\r\n"
        text = served.call(lambda: QueueMetrics(served.service).text())
    text.encode()
    samples = [SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    names = [sample[1] for sample in samples if sample is not None]
    assert len(names) == len(samples) == len(set(names))
    assert {f'logwright_kestrel_queue_bytes{{queue="{label}"}}' for label in NAMES.values()} <= set(names)
