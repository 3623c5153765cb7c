"""An unknown option is reported with the nearest existing one, by every public constructor."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import logwright
from logwright import appendfile, kestrel, sej, versioned, yeltsin
from logwright.core.options import NamedOptions, known_options
from logwright.errors import UnknownFormat, UnknownOption, WrongUse
from logwright.kestrel import AsyncQueue, Limits, Queue
from logwright.pipeline import JournalRule, Settings, TableRule
from logwright.servers import hub
from logwright.servers.hub import Hub, HubClient
from logwright.servers.queue.limits import ServerLimits
from logwright.servers.queue.server import QueueServer
from logwright.servers.queue.service import ServerSettings

PACKAGES = (appendfile, kestrel, sej, versioned, yeltsin)
PUBLIC = {
    f"{package.__name__.removeprefix('logwright.')}.{name}": getattr(package, name)
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(getattr(package, name))
}
OPENED = {name: found for name, found in PUBLIC.items() if issubclass(found, NamedOptions)}
NOT_OPENED = {
    "appendfile.AppendJournal": "is opened by `open`, see below",
    "versioned.VersionedRecovery": "is loaded by `load`",
}


@pytest.mark.parametrize("name", OPENED)
def test_misspelt_option_of_a_constructor_names_the_nearest_one(name: str) -> None:
    opened = OPENED[name]
    options = known_options(opened.__init__)
    assert options is not None
    for option in options:
        with pytest.raises(UnknownOption, match=rf"^there is no option {option}x; did you mean {option}\?$"):
            opened(**{f"{option}x": None})


def test_every_class_that_opens_something_names_options() -> None:
    opened = {name for name, found in PUBLIC.items() if hasattr(found, "close") or hasattr(found, "load")}
    assert opened - set(OPENED) == set(NOT_OPENED)


def test_signature_of_a_constructor_is_its_own() -> None:
    assert list(inspect.signature(Limits).parameters)[:2] == ["max_items", "max_bytes"]
    assert list(inspect.signature(sej.Writer).parameters)[:2] == ["directory", "sync"]


def test_options_of_a_queue_include_its_limits(tmp_path: Path) -> None:
    misspelt: list[tuple[type[Queue] | type[AsyncQueue], dict[str, Any], str]] = [
        (Queue, {"synk": "always"}, "sync"),
        (AsyncQueue, {"max_itms": 1}, "max_items"),
    ]
    for opened, options, near in misspelt:
        with pytest.raises(UnknownOption, match=f"; did you mean {near}\\?$"):
            opened(tmp_path, "cars", **options)
    assert list(tmp_path.iterdir()) == []


def test_option_that_resembles_none_lists_all(tmp_path: Path) -> None:
    options: dict[str, Any] = {"0": 1}
    with pytest.raises(UnknownOption, match=r"^there is no option 0; there are path, disk$") as caught:
        yeltsin.Reader(tmp_path, **options)
    assert isinstance(caught.value, WrongUse)
    assert isinstance(caught.value, TypeError)


def test_servers_and_the_pipeline_name_options() -> None:
    for named in (
        Hub,
        HubClient,
        hub.Limits,
        QueueServer,
        ServerSettings,
        ServerLimits,
        Settings,
        JournalRule,
        TableRule,
    ):
        *_, option = known_options(named.__init__) or ()
        options: Any = {f"{option}x": None}
        with pytest.raises(UnknownOption, match=rf"^there is no option {option}x; did you mean {option}\?$"):
            named(**options)
    misspelt: Any = {"nam": "orders"}
    for copy in (hub.copy, hub.restore):
        with pytest.raises(UnknownOption, match=r"^there is no option nam; did you mean name\?$"):
            copy("orders", "127.0.0.1:1", client="web", **misspelt)


def test_unknown_format_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=r"^there is no format 'kestral'; did you mean kestrel\?$"):
        logwright.open(tmp_path, "kestral")
    with pytest.raises(UnknownFormat, match=r"^there is no format 'x'; there are sej, kestrel, versioned, "):
        logwright.open(tmp_path, "x")


def test_asynchronous_openings_name_options(tmp_path: Path) -> None:
    options: dict[str, Any] = {"synch": "always"}
    with pytest.raises(UnknownOption, match=r"^there is no option synch; did you mean sync\?$"):
        asyncio.run(appendfile.AppendJournal.open(tmp_path, **options))
    with pytest.raises(UnknownOption, match=r"^there is no option synch; did you mean sync\?$"):
        versioned.AsyncVersionedKVStore.open(tmp_path, "cars", **options)
    assert list(tmp_path.iterdir()) == []


def test_subclass_may_accept_other_options(tmp_path: Path) -> None:
    class Named(sej.Writer):
        def __init__(self, directory: Path, **options: Any) -> None:
            self.title = options.pop("title")
            super().__init__(directory, **options)

    with Named(tmp_path, title="orders", sync="always") as writer:
        assert writer.title == "orders"
        assert writer.append(b"") == 0
