"""What a pipeline file says, and what it says wrong."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from logwright.errors import NotFound, WrongUse
from logwright.pipeline import JournalRule, Settings, TableRule, load

WHOLE = """
journals = "journals"
out = "s3://bucket/tables"
mode = "dropmalformed"
format = "delta"
tables = ["events", "messages"]
fail_on_data_loss = false
split = "32m"
batch = 4096
local = "1m"
moment = 2026-01-15T12:00:00

[options]
compression = "zstd"
level = 3
checked = true

[table.messages]
partition_by = ["journal", "date"]

[[journal]]
match = "orders/*"
decode = "json"
mode = "failfast"

[[journal]]
match = "sensors"
decode = "avro"
schema = "schemas/sensors.avsc"

[[journal]]
match = "orders/old*"
exclude = true
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "pipeline.toml"
    path.write_text(text)
    return path


def test_every_setting_of_a_file_is_read(tmp_path: Path) -> None:
    assert load(written(tmp_path, WHOLE)) == Settings(
        journals=str(tmp_path / "journals"),
        out="s3://bucket/tables",
        mode="dropmalformed",
        format="delta",
        options={"compression": "zstd", "level": "3", "checked": "true"},
        tables=("events", "messages"),
        fail_on_data_loss=False,
        split_bytes=32 << 20,
        batch_bytes=4096,
        local_bytes=1 << 20,
        moment=datetime.datetime(2026, 1, 15, 12, tzinfo=datetime.UTC),
        table_rules={"messages": TableRule(("journal", "date"))},
        journal_rules=(
            JournalRule("orders/*", decode="json", mode="failfast"),
            JournalRule("sensors", decode="avro", schema=str(tmp_path / "schemas/sensors.avsc")),
            JournalRule("orders/old*", exclude=True),
        ),
    )


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'journals = "one"\nout = "/tables"\nmode = "failfast"\n')
    settings = load(path, journals="/other", mode=None, incremental=True)
    assert (settings.journals, settings.out, settings.mode, settings.incremental) == (
        "/other",
        "/tables",
        "failfast",
        True,
    )


def test_first_matching_rule_of_a_journal_applies(tmp_path: Path) -> None:
    settings = load(written(tmp_path, WHOLE))
    assert settings.rule_of("orders/old-ones").decode == "json"
    assert settings.mode_of("orders/new") == "failfast"
    assert settings.mode_of("sensors") == "dropmalformed"
    assert settings.rule_of("another") == JournalRule("another")
    assert JournalRule("a?c/*").fits("abc/x/y")
    assert not JournalRule("Orders").fits("orders")


def test_chosen_tables_keep_their_order() -> None:
    known = {"events": 1, "messages": 2, "damage": 3}
    assert Settings("a", "b").chosen(known) == ["events", "messages", "damage"]
    assert Settings("a", "b", tables=("damage", "events")).chosen(known) == ["events", "damage"]
    with pytest.raises(WrongUse, match="there is no 'massages'; there are events, messages, damage"):
        Settings("a", "b", tables=("massages",)).chosen(known)
    with pytest.raises(WrongUse, match="there is no 'event'"):
        Settings("a", "b", table_rules={"event": TableRule()}).chosen(known)


BASE = 'journals = "a"\nout = "b"\n'


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("journals = 'a'", "out is neither in this file"),
        ("out = 'a'", "journals is neither in this file"),
        ("= 1", "pipeline.toml: "),
        (BASE + "formatt = 'orc'", "'formatt' is not known; did you mean format?"),
        (BASE + "mode = 'lenient'", "there is no 'lenient'; there are failfast, permissive, dropmalformed"),
        (BASE + "format = 3", "format must be a text, not 3"),
        (BASE + "tables = 'events'", "tables must be a list of texts, not 'events'"),
        (BASE + "tables = []", "tables must name at least one table; leave it out for all of them"),
        (BASE + "split = 'much'", "split: 'much' is not a size; write 1048576, 64m or 1g"),
        (BASE + "batch = 0", "batch: '0' is not a size"),
        (BASE + "moment = 5", "moment must be a time such as"),
        (BASE + "split = true", "split must be a text, not True"),
        (BASE + "fail_on_data_loss = 'no'", "fail_on_data_loss must be true or false"),
        (BASE + "options = ['a']", "options must be a table"),
        (BASE + "[options]\na = [1]", "options.a must be a text, a number, true or false"),
        (BASE + "table = 3", "table must be a table, not 3"),
        (BASE + "[table.events]\nby = ['a']", "'by' is not known in table.events; there are partition_by"),
        (BASE + "[journal]\nmatch = 'a'", r"under \[\[journal\]\], with two brackets"),
        (BASE + "[[journal]]\ndecode = 'json'", "needs a match, for example"),
        (BASE + "[[journal]]\nmatch = 'a'\ndecode = 'xml'", "there is no 'xml'; there are json, msgpack, bonjson"),
        (BASE + "[[journal]]\nmatch = 'a'\ndecode = 'avro'", "a schema belong together"),
        (BASE + "[[journal]]\nmatch = 'a'\nschema = 'x'", "a schema belong together"),
        (BASE + "[[journal]]\nmatch = 'a'\nexclude = 'yes'", "journal.exclude must be true or false"),
        (BASE + "[[journal]]\nmatch = 'a'\nmodus = 'x'", "'modus' is not known in journal; did you mean mode?"),
    ],
)
def test_errors_in_a_file_are_named(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(WrongUse, match=wrong) as caught:
        load(written(tmp_path, text))
    assert "pipeline.toml" in str(caught.value)


def test_missing_or_undecodable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load(tmp_path / "missing.toml")
    path = tmp_path / "pipeline.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(WrongUse, match=r"pipeline\.toml"):
        load(path)
