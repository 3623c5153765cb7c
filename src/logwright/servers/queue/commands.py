"""What each request does; `reads.py` has `get`.

A command other than `set` and `get` is a function of the client, of the words of its line without the first, and of the
request, which is repeated if a queue has to be opened or settled first. Case does not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ...errors import LogwrightError
from . import answers
from .connection import Connection
from .kernel import NO_TOKEN
from .parser import GET, HANG_UP, OTHER, SET, Request
from .queues import OPEN, Served, name_of
from .reads import parse_put_key
from .stats import dump_of_limits, dump_of_queues, lines_of, settings_of, stats_of

logger = logging.getLogger("logwright.servers.queue")
_NOREPLY: Final = b"noreply"
_MOST_SECONDS_DIGITS: Final = 9
_EMPTY_STATS: Final = (b"items", b"slabs", b"sizes", b"conns", b"detail", b"cachedump", b"extstore")
"""Statistics of memcached's memory: answered with nothing."""


def carry_out(client: Connection, request: Request) -> None:
    """Carry out a request."""
    kind = request[0]
    if client.state & NO_TOKEN:
        _authenticate(client, request)
    elif kind == SET:
        _set(client, request)
    elif kind == GET:
        client.reads.get(request)
    elif kind == OTHER:
        _do_other(client, request)
    else:
        client.refuse(request[1])
        if kind == HANG_UP:
            client.hang_up()


def _do_other(client: Connection, request: Request) -> None:
    words: list[bytes] = request[1]
    command = _COMMANDS.get(words[0]) or _COMMANDS.get(words[0].lower())
    if command is None:
        client.refuse(answers.ERROR)
    else:
        command(client, words[1:], request)


def _authenticate(client: Connection, request: Request) -> None:
    """Check the token of a client: the data of a `set`, alone or after a name and a space."""
    if request[0] == SET:
        if client.service.protection.admits(request[3].rpartition(b" ")[2]):
            client.accept_token()
            client.answer(answers.STORED)
        else:
            client.service.counters.refused_tokens += 1
            client.answer(answers.BAD_TOKEN)
            client.hang_up()
    elif request[0] == OTHER and request[1][0].lower() == b"quit":
        client.hang_up()
    else:
        client.answer(request[1] if request[0] == HANG_UP else answers.UNAUTHENTICATED)
        if request[0] == HANG_UP:
            client.hang_up()


def _without_noreply(words: list[bytes]) -> tuple[list[bytes], bool]:
    if words and words[-1] == _NOREPLY:
        return words[:-1], True
    return words, False


def _count(word: bytes) -> int | None:
    return int(word) if word.isdigit() and len(word) <= _MOST_SECONDS_DIGITS else None


def _checked_name(client: Connection, key: bytes) -> bool:
    """Whether it is a valid name of a queue; if not, sends an error."""
    if len(key) <= client.service.limits.max_key_bytes and name_of(key) is not None:
        return True
    client.refuse(answers.BAD_NAME)
    return False


# --- queues ---------------------------------------------------------------------------------------------------------


def _set(client: Connection, request: Request) -> None:
    _, key, expiry, data, quiet = request
    service = client.service
    queue = service.queues.by_key.get(key)
    if service.no_puts is not None:
        client.refuse(b"" if quiet else service.no_puts)
        return
    if queue is None or queue.phase is not OPEN or key in service.suspended:
        _set_elsewhere(client, request)
        return
    if queue.handle.has_children and (child := service.queues.changing_child(key)) is not None:
        service.queues.when_settled(child, client.repeating(request))
        return
    service.counters.cmd_set += 1
    try:
        changed = service.put(queue, data, expiry)
    except LogwrightError as error:
        answer = answers.failure(error)
        client.refuse(b"" if quiet else answer)
        service.notice(error)
        return
    if not quiet:
        client.answer(answers.STORED, changed)


def _set_elsewhere(client: Connection, request: Request) -> None:
    """Handle a `set` for a queue that is not open, or accepts nothing at present."""
    _, key, _, _, quiet = request
    if b"/" in key:
        _set_with_options(client, request)
        return
    refusal = client.service.suspended.get(key)
    if refusal is None:
        name = name_of(key)
        if name is None or len(key) > client.service.limits.max_key_bytes:
            refusal = answers.BAD_NAME
    if refusal is not None:
        client.refuse(b"" if quiet else refusal)
    else:
        client.with_queue(key, request, quiet=quiet)


def _set_with_options(client: Connection, request: Request) -> None:
    """Handle a `set` with a delay or an id. A thread does it, because it may wait for the disk."""
    _, key, expiry, data, quiet = request
    service = client.service
    options = parse_put_key(key)
    name, _, words = key.partition(b"/")
    is_name = name_of(name) is not None and words[:1].isalpha()  # otherwise the slash is part of a wrong name
    if len(key) > service.limits.max_key_bytes or not is_name:
        client.refuse(b"" if quiet else answers.BAD_NAME)
        return
    if options is None or (options.delay is not None and expiry):
        client.refuse(b"" if quiet else answers.BAD_OPTIONS)
        return
    if (refusal := service.suspended.get(options.name)) is not None:
        client.refuse(b"" if quiet else refusal)
        return
    queue = service.queues.by_key.get(options.name)
    if queue is None or service.queues.is_changing(options.name):
        client.with_queue(options.name, request, quiet=quiet)
        return
    if queue.handle.has_children and (child := service.queues.changing_child(options.name)) is not None:
        service.queues.when_settled(child, client.repeating(request))
        return
    service.counters.cmd_set += 1

    def ended(changed: tuple[Served, ...], error: BaseException | None) -> None:
        if error is not None:
            client.refuse(b"" if quiet else answers.failure(error))
            service.notice(error)
        elif not quiet:
            client.answer(answers.STORED, changed)
        client.settle()

    client.unsettle()
    service.put_with_options(queue, data, expiry, options.delay, options.id, ended)


def _delete(client: Connection, words: list[bytes], request: Request) -> None:
    words, quiet = _without_noreply(words)
    if not words:
        client.refuse(answers.ERROR)
    elif len(words) > 2 or (len(words) == 2 and words[1] != b"0"):
        client.refuse(answers.BAD_LINE)
    else:
        is_kestrel = client.service.settings.kestrel_names
        done, absent = (answers.END, answers.END) if is_kestrel else (answers.DELETED, answers.NOT_FOUND)
        _change(client, words[0], request, quiet, client.service.queues.delete, done, absent)


def _flush(client: Connection, words: list[bytes], request: Request) -> None:
    words, quiet = _without_noreply(words)
    if len(words) != 1:
        client.refuse(answers.ERROR)
    else:
        _change(client, words[0], request, quiet, client.service.queues.flush, answers.END, answers.END)


def _change(
    client: Connection,
    key: bytes,
    request: Request,
    quiet: bool,
    change: Callable[[Served, Callable[[BaseException | None], None]], None],
    done: bytes,
    absent: bytes,
) -> None:
    """Change a queue in a thread, and answer when it is done."""
    service = client.service
    if not _checked_name(client, key):
        return
    if service.no_changes is not None:
        client.refuse(b"" if quiet else service.no_changes)
        return
    if service.queues.is_changing(key):
        service.queues.when_settled(key, client.repeating(request))
        return
    queue = service.queues.by_key.get(key)
    if queue is None and service.queues.is_there(key):
        client.with_queue(key, request, quiet=quiet)  # sends the reason
        return
    if queue is None:
        if not quiet:
            client.answer(absent)
        return
    changed = queue

    def ended(error: BaseException | None) -> None:
        if error is not None:
            client.refuse(b"" if quiet else answers.failure(error))
            service.notice(error)
        else:
            if changed.is_gone:
                for waiter in list(changed.waiters):
                    waiter.give_up()
            if not quiet:
                client.answer(done, () if changed.is_gone else changed.alone)
        client.settle()

    client.unsettle()
    change(queue, ended)


def _flush_all(client: Connection, words: list[bytes], request: Request) -> None:
    words, quiet = _without_noreply(words)
    service = client.service
    if len(words) > 1 or (words and words[0] != b"0"):
        client.refuse(answers.BAD_LINE)
        return
    if service.no_changes is not None:
        client.refuse(b"" if quiet else service.no_changes)
        return
    changing = service.queues.any_changing()
    if changing is not None:
        service.queues.when_settled(changing, client.repeating(request))
        return
    queues = list(service.queues.by_key.values())
    failed = list(service.queues.refused)
    left = len(queues)

    def ended(queue: Served | None, error: BaseException | None = None) -> None:
        nonlocal left
        left -= 1
        if error is not None and queue is not None:
            failed.append(queue.key)
            service.notice(error)
        if left > 0:
            return
        if failed:
            client.refuse(b"" if quiet else answers.not_flushed(sorted(failed)))
        elif not quiet:
            done = answers.FLUSHED_ALL if service.settings.kestrel_names else answers.OK
            client.answer(done, tuple(queue for queue in queues if not queue.is_gone))
        client.settle()

    client.unsettle()
    if not queues:
        ended(None)
    for queue in queues:
        service.queues.flush(queue, partial(ended, queue))


# --- reads ----------------------------------------------------------------------------------------------------------


def _monitor(client: Connection, words: list[bytes], request: Request) -> None:
    service = client.service
    numbers = [_count(word) for word in words[1:]]
    if not 2 <= len(words) <= 3:
        client.refuse(answers.ERROR)
        return
    seconds = numbers[0]
    most = numbers[1] if len(numbers) > 1 else service.limits.max_monitored_items
    if seconds is None or most is None or most == 0:
        client.refuse(answers.BAD_LINE)
        return
    if not _checked_name(client, words[0]):
        return
    if service.no_gets is not None:
        client.refuse(service.no_gets)
        return
    queue = service.queues.by_key.get(words[0])
    if queue is None or service.queues.is_changing(words[0]):
        client.with_queue(words[0], request)
        return
    service.counters.cmd_monitor += 1
    client.reads.monitor(queue, min(float(seconds), service.limits.max_wait_seconds), most)


def _confirm(client: Connection, words: list[bytes], request: Request) -> None:
    if len(words) != 2:
        client.refuse(answers.ERROR)
        return
    count = _count(words[1])
    if count is None:
        client.refuse(answers.BAD_LINE)
    elif client.service.queues.is_changing(words[0]):
        client.service.queues.when_settled(words[0], client.repeating(request))
    elif _checked_name(client, words[0]):
        queues = client.reads.confirm(words[0], count)
        if queues is None:
            client.refuse(answers.ERROR)
        else:
            client.answer(answers.END, queues)


# --- the server -----------------------------------------------------------------------------------------------------


def _version(client: Connection, words: list[bytes], request: Request) -> None:
    client.answer(b"VERSION %b\r\n" % client.service.version.encode())


def _verbosity(client: Connection, words: list[bytes], request: Request) -> None:
    words, quiet = _without_noreply(words)
    if not words:
        client.refuse(answers.ERROR)
    elif not quiet:
        client.answer(answers.OK)


def _quit(client: Connection, words: list[bytes], request: Request) -> None:
    client.hang_up()


def _status(client: Connection, words: list[bytes], request: Request) -> None:
    if not words:
        client.answer(client.service.status.encode() + b"\r\n")
    elif len(words) > 1:
        client.refuse(answers.BAD_STATUS)
    else:
        try:
            is_taken = client.service.change_status(words[0].decode("ascii", "replace"))
        except LogwrightError as error:
            logger.error("the status was not changed: %s", error)
            client.refuse(answers.NOT_SAVED)
            return
        if is_taken:
            client.answer(answers.END)
        else:
            client.refuse(answers.BAD_STATUS)


def _stats(client: Connection, words: list[bytes], request: Request) -> None:
    service = client.service
    if not words:
        client.answer(lines_of(stats_of(service)))
    elif words[0] == b"settings":
        client.answer(lines_of(settings_of(service)))
    elif words[0] == b"reset":
        service.counted().reset()
        client.answer(answers.RESET)
    elif words[0] in _EMPTY_STATS:
        client.answer(answers.END)
    else:
        client.refuse(answers.ERROR)


def _dump_stats(client: Connection, words: list[bytes], request: Request) -> None:
    client.answer(dump_of_queues(client.service, words[0] if words else None))


def _dump_config(client: Connection, words: list[bytes], request: Request) -> None:
    client.answer(dump_of_limits(client.service))


_COMMANDS: Final[dict[bytes, Callable[[Connection, list[bytes], Request], None]]] = {
    b"delete": _delete,
    b"flush": _flush,
    b"flush_all": _flush_all,
    b"monitor": _monitor,
    b"confirm": _confirm,
    b"version": _version,
    b"verbosity": _verbosity,
    b"quit": _quit,
    b"status": _status,
    b"stats": _stats,
    b"dump_stats": _dump_stats,
    b"dump_config": _dump_config,
}
