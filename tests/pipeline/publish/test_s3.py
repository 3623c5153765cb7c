"""Delta and Iceberg tables in an object store, with the S3 protocol on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from logwright import kestrel, sej
from logwright.errors import StorageFailed, WrongUse
from logwright.pipeline import Settings
from logwright.pipeline.publish import Batch, open_publisher
from logwright.pipeline.publish.store import S3Store
from logwright.pipeline.run import run
from tests.pipeline.publish.worlds import EVENTS, NEW, OLD, READERS, event, first_batch, second_batch, view, write
from tests.pipeline.test_increments import MOMENT, no_spark
from tests.pipeline.worlds import World, rows_of

each_format = pytest.mark.parametrize("format", ["delta", "iceberg"])


class Bucket:
    """A new bucket. Credentials are in the environment."""

    def __init__(self, server: str, name: str, catalog: Path) -> None:
        self.uri = f"s3://{name}/some/tables"
        self.endpoint = f"http://{server}"
        self.prefix = f"{name}/some/tables"
        self.files = fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=server,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.files.create_dir(name)
        self.catalog = {"type": "sql", "uri": f"sqlite:///{catalog}"}

    def options(self, format: str) -> dict[str, str]:
        found = {"endpoint": self.endpoint, "region": "us-east-1"}
        if format == "iceberg":
            found |= {f"catalog.{name}": value for name, value in self.catalog.items()}
        return found

    def view(self, format: str) -> dict[str, Any]:
        places: Mapping[str, Mapping[str, str]] = {
            "delta": {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"},
            "iceberg": {"s3.endpoint": self.endpoint, "s3.region": "us-east-1", **self.catalog},
        }
        return view(format, self.uri, places[format])

    def rows(self, format: str, table: str) -> int:
        """The number of rows that a reader of the format finds."""
        if format == "delta":
            places = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
            found = READERS[format](self.uri, table, places)
        else:
            found = READERS[format](
                self.uri, table, {"s3.endpoint": self.endpoint, "s3.region": "us-east-1", **self.catalog}
            )
        return 0 if found is None else int(found.num_rows)

    def names(self) -> list[str]:
        found = self.files.get_file_info(fs.FileSelector(self.prefix, recursive=True))
        return sorted(info.path.removeprefix(f"{self.prefix}/") for info in found if info.type == fs.FileType.File)


@pytest.fixture
def bucket(s3_server: str, tmp_path: Path, request: pytest.FixtureRequest) -> Bucket:
    return Bucket(s3_server, f"tables-{abs(hash(request.node.nodeid)) % 10**9}", tmp_path / "catalog.db")


@each_format
def test_batches_are_published_and_continued_after_opening_again(bucket: Bucket, format: str) -> None:
    with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
        first_batch(publisher)
        assert bucket.view(format) == OLD
    with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
        assert publisher.checkpoint is not None
        assert publisher.checkpoint.state == {"read": 1}
        second_batch(publisher)
    assert bucket.view(format) == NEW
    control = [name for name in bucket.names() if name.startswith("_logwright/")]
    assert control == ["_logwright/format.json", "_logwright/pipeline.json"]


@each_format
def test_leftovers_and_reports_are_handled_as_on_a_disk(bucket: Bucket, format: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text("report")
    with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
        write(publisher, "events", [event(9)], EVENTS)
    with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
        assert not [name for name in bucket.names() if "part-" in name]
        first_batch(publisher)
        publisher.publish(Batch(2, report=report))
        assert "report.html" in bucket.names()


@each_format
def test_a_batch_that_was_interrupted_is_completed(
    bucket: Bucket, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a control file fails once, and everything after it."""
    with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
        first_batch(publisher)
    expected = {"manifest.json": OLD, "pipeline.json": NEW}
    for name, found in expected.items():
        with monkeypatch.context() as patched, contextlib.suppress(StorageFailed):
            plain = S3Store.write

            def failing(self: S3Store, place: str, data: bytes, at: str = name, plain: Any = plain) -> None:
                if place.endswith(at):
                    raise StorageFailed("write", place, OSError("the network is down"))
                plain(self, place, data)

            patched.setattr(S3Store, "write", failing)
            with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
                second_batch(publisher)
        with open_publisher(bucket.uri, format, bucket.options(format)) as publisher:
            assert publisher.completed == (found is NEW)
            assert publisher.batch == (3 if found is NEW else 2)
        assert bucket.view(format) == found


def test_credentials_are_in_no_file_and_no_message(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    server = bucket.endpoint.removeprefix("http://")
    place = f"s3://hidden:password@{bucket.prefix}?scheme=http&endpoint_override={server}&region=us-east-1"
    for format in ("delta", "iceberg"):
        options = {name: value for name, value in bucket.options(format).items() if name.startswith("catalog.")}
        with open_publisher(f"{place.replace('tables?', f'{format}?')}", format, options) as publisher:
            first_batch(publisher)
    everything = bucket.files.get_file_info(fs.FileSelector(bucket.prefix.rpartition("/")[0], recursive=True))
    files = [info.path for info in everything if info.type == fs.FileType.File]
    assert len(files) > 10
    for path in files:
        data = bucket.files.open_input_file(path).read()
        assert b"password" not in data, path
        assert b"hidden" not in data, path
    assert b"password" not in Path(bucket.catalog["uri"].removeprefix("sqlite:///")).read_bytes()
    with pytest.raises(StorageFailed) as raised:
        open_publisher("s3://hidden:password@bucket/x?scheme=http&endpoint_override=127.0.0.1:9&region=x", "delta")
    assert "password" not in str(raised.value)


def test_places_that_cannot_be_used_are_refused(bucket: Bucket) -> None:
    with bucket.files.open_output_stream(f"{bucket.prefix}/thesis.txt") as stream:
        stream.write(b"precious")
    with pytest.raises(WrongUse, match=r"contains other files \(thesis.txt"):
        open_publisher(bucket.uri, "delta", bucket.options("delta"))
    with pytest.raises(WrongUse, match="need a catalog"):
        open_publisher(f"{bucket.uri}/else", "iceberg", bucket.options("delta"))
    assert bucket.names() == ["thesis.txt"]


@each_format
def test_runs_of_the_pipeline_write_to_and_read_from_an_object_store(
    bucket: Bucket, format: str, tmp_path: Path
) -> None:
    world = World(tmp_path / "journals", format)
    settings = Settings(
        str(world.root), bucket.uri, incremental=True, format=format, options=bucket.options(format), moment=MOMENT
    )
    for _ in range(2):
        world.everything()
        result = run(settings, no_spark)
    run(replace(settings, out=str(tmp_path / "parquet"), incremental=False, format="parquet", options={}), no_spark)
    for table in ("messages", "queue_items", "kv_state", "activity"):
        rows = rows_of(tmp_path / "parquet", table)
        assert result.tables[table].rows == len(rows)
        assert bucket.rows(format, table) == len(rows)
    assert result.report == f"{bucket.uri}/report.html"


def test_journals_below_a_uri_with_options_are_read(s3_server: str, tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "root" / "deep" / "orders") as writer:
        for number in range(10):
            writer.append(b"%d" % number)
    for name in ("cars", "bikes"):
        with kestrel.Writer(tmp_path / "root" / "queues" / name) as queue:
            queue.addx(b"one")
    bucket = Bucket(s3_server, "several", tmp_path / "catalog.db")
    fs.copy_files(str(tmp_path / "root"), "several/journals", destination_filesystem=bucket.files)
    uri = f"s3://key:secret@several/journals?scheme=http&endpoint_override={s3_server}&region=us-east-1"
    result = run(Settings(uri, str(tmp_path / "out"), tables=("messages", "queue_items", "damage")), no_spark)
    assert {name: one.records for name, one in result.journals.items()} == {"deep/orders": 10, "queues": 2}
    assert {name: table.rows for name, table in result.tables.items()} == {
        "damage": 0,
        "messages": 10,
        "queue_items": 2,
    }
