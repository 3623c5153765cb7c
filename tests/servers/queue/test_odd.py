"""Three thousand odd, oversized or split requests get the exact answer, and change nothing.

The expected answer is given beside each request, by rules that are simpler than a parser. Each request is sent whole,
or cut somewhere, among good requests whose answers must be in their place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from logwright.servers.queue.limits import ServerLimits
from tests.servers.queue.support import VERSION, Client, serving
from tests.support.counts import COUNTS

NUMBER = 3000
MAX_ITEM = 5000
ERROR = b"ERROR\r\n"
BAD_LINE = b"CLIENT_ERROR bad command line format\r\n"
BAD_NAME = b"CLIENT_ERROR invalid queue name\r\n"
BAD_DATA = b"CLIENT_ERROR bad data chunk\r\n"
BAD_OPTIONS = b"CLIENT_ERROR invalid options\r\n"
TOO_LARGE = b"SERVER_ERROR object too large for cache\r\n"
HOSTILE = (
    b"..", b".", b"../q", b"/etc/passwd", b"a/../b", b"a.b", b"q~~1", b"~q", b"+", b"+a", b"a+", b"a+b+c",
    b".logwright", b"q.904", b"q.904.pack", b"q\x00", b"q\x7f", b"\x01", b"\xff/..", b"..%2fq", b"q" * 230,
    b"\xff" * 230,
)  # fmt: skip
Odd = Callable[[random.Random], tuple[bytes, bytes]]


def word(chance: random.Random) -> bytes:
    return bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz_-0123456789", k=chance.randint(1, 12)))


def name(chance: random.Random) -> bytes:
    return chance.choice(HOSTILE)


def data(chance: random.Random, most: int = 200) -> bytes:
    kind = chance.randrange(3)
    if kind == 0:
        return b"flush_all\r\ndelete keep\r\n" * chance.randint(1, 4)
    return bytes(chance.choices(range(256) if kind == 1 else b"xyz", k=chance.randint(0, most)))


def unknown_command(chance: random.Random) -> tuple[bytes, bytes]:
    return b"%b %b %b\r\n" % (chance.choice([b"zap", b"incr", b"touch", b"gat", b"mg", b"lru", b"shutdown", b"reload"]),
                              word(chance), word(chance)), ERROR  # fmt: skip


def too_few_or_many_words(chance: random.Random) -> tuple[bytes, bytes]:
    line = chance.choice(
        [b"get", b"gets", b"set", b"set keep", b"set keep 0", b"set keep 0 0", b"set keep 0 0 1 a b", b"delete",
         b"delete noreply", b"flush", b"flush keep b", b"monitor", b"monitor keep", b"monitor keep 1 2 3", b"confirm",
         b"confirm keep", b"confirm keep 1 2", b"verbosity", b"", b"   ", b"cas keep 0 0 1", b"confirm keep 1"]
    )  # fmt: skip
    return line + chance.choice([b"\r\n", b"\n"]), ERROR


def bad_numbers(chance: random.Random) -> tuple[bytes, bytes]:
    number = chance.choice([b"x", b"-1", b"1.5", b"0x1", b"99999999999999", b"1_0", b"+1", b"\xd9\xa1"])
    line = chance.choice(
        [b"set keep 0 0 %b", b"monitor keep %b", b"monitor keep 1 %b", b"confirm keep %b", b"delete keep %b",
         b"flush_all %b", b"set keep 0 0 %b noreply"]
    )  # fmt: skip
    return line % number + b"\r\n", BAD_LINE


def bad_flags_or_expiry(chance: random.Random) -> tuple[bytes, bytes]:
    content = data(chance)
    flags, expiry = chance.choice([(b"x", b"0"), (b"-1", b"0"), (b"4294967296", b"0"), (b"0", b"soon"), (b"0", b"--1"),
                                   (b"0", b"253402300800"), (b"0", b"1.5"), (b"\xb9", b"0")])  # fmt: skip
    quiet = chance.random() < 0.3
    line = b"set keep %b %b %d%b\r\n" % (flags, expiry, len(content), b" noreply" if quiet else b"")
    return line + content + b"\r\n", b"" if quiet else BAD_LINE


def bad_name_set(chance: random.Random) -> tuple[bytes, bytes]:
    content, quiet = data(chance), chance.random() < 0.3
    line = b"set %b 0 0 %d%b\r\n" % (name(chance), len(content), b" noreply" if quiet else b"")
    return line + content + b"\r\n", b"" if quiet else BAD_NAME


def bad_name(chance: random.Random) -> tuple[bytes, bytes]:
    hostile = name(chance)
    line = chance.choice([b"delete %b", b"flush %b", b"monitor %b 1", b"confirm %b 0", b"delete %b 0"])
    return line % hostile + b"\r\n", BAD_NAME


def bad_name_get(chance: random.Random) -> tuple[bytes, bytes]:
    hostile = chance.choice([one for one in HOSTILE if b"/" not in one])
    keys = b"%b%b" % (hostile, chance.choice([b"", b"/open", b"/t=5", b"/peek", b"/close"]))
    return b"%b keep/peek %b\r\n" % (chance.choice([b"get", b"gets", b"GET"]), keys), BAD_NAME


def bad_options(chance: random.Random) -> tuple[bytes, bytes]:
    options = chance.choice(
        [b"/open/abort", b"/peek/open", b"/abort/close", b"/peek/abort", b"/close/peek", b"/nonsense", b"/t=", b"/t=x",
         b"/t=-5", b"/t=1.5", b"/", b"//", b"/open/", b"/t=9999999999999", b"/OPEN", b"/../../../etc/passwd",
         b"/t=5/.."]
    )  # fmt: skip
    return b"get keep%b\r\n" % options, BAD_OPTIONS


def bad_data(chance: random.Random) -> tuple[bytes, bytes]:
    content, quiet = data(chance).replace(b"\n", b"."), chance.random() < 0.3
    more = bytes(chance.choices(b"abc \r", k=chance.randint(2, 40)))
    if more[:2] == b"\r\n":
        more = b"x" + more
    line = b"set keep 0 0 %d%b\r\n" % (len(content), b" noreply" if quiet else b"")
    return line + content + more + b"\n", b"" if quiet else BAD_DATA


def too_large(chance: random.Random) -> tuple[bytes, bytes]:
    size, quiet = MAX_ITEM + chance.randint(1, 3000), chance.random() < 0.3
    content = (b"get keep\r\nflush_all\r\n" * 1000)[:size]
    line = b"set keep 0 0 %d%b\r\n" % (size, b" noreply" if quiet else b"")
    return line + content + b"\r\n", b"" if quiet else TOO_LARGE


def other_storage(chance: random.Random) -> tuple[bytes, bytes]:
    content = data(chance)
    command = chance.choice([b"add", b"replace", b"append", b"prepend", b"ADD"])
    return b"%b keep 0 0 %d\r\n%b\r\n" % (command, len(content), content), ERROR


def too_long_key(chance: random.Random) -> tuple[bytes, bytes]:
    return b"get %b\r\n" % (b"k" * chance.randint(251, 900)), BAD_LINE


ODD: list[Odd] = [
    unknown_command, too_few_or_many_words, bad_numbers, bad_flags_or_expiry, bad_name_set, bad_name, bad_name_get,
    bad_options, bad_data, too_large, other_storage, too_long_key,
]  # fmt: skip
GOOD = [
    (b"version\r\n", VERSION),
    (b"get keep/peek\r\n", b"VALUE keep/peek 0 4\r\nhead\r\nEND\r\n"),
    (b"get absent\r\n", b"END\r\n"),
    (b"get keep/close\r\n", b"END\r\n"),
]


def pieces(chance: random.Random, whole: bytes) -> list[bytes]:
    """The same in some pieces, or whole."""
    cuts = sorted(chance.sample(range(len(whole)), k=min(chance.choice([0, 1, 1, 3]), len(whole) - 1)))
    return [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def test_odd_requests_get_the_exact_response_and_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261116)
    limits = ServerLimits(max_item_bytes=MAX_ITEM)
    with serving(tmp_path / "queues", limits=limits) as served, Client(served) as client:
        client.ask(b"set keep 0 0 4\r\nhead\r\nset keep 0 0 4\r\ntail\r\n")
        before = served.state()
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        for number in range(NUMBER):
            odd, answer = ODD[number % len(ODD)](chance)
            good, good_answer = chance.choice(GOOD)
            for piece in pieces(chance, odd + good):
                client.say(piece)
            expected = answer + good_answer
            assert client.hear(len(expected)) == expected, odd
        assert client.ask(b"") == b""
        assert served.state() == before == {"keep": ([b"head", b"tail"], 0)}
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    COUNTS.add("hostile inputs", NUMBER, "kestrel")
