"""The requests of the page, on the journals of the demo: what they return, and that they change nothing."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logwright import kestrel, sej
from logwright.cli import main
from logwright.kestrel.bytes.layout import delayed_name
from logwright.versioned.bytes import bonjson
from logwright.web import catalog, outline
from logwright.web.api import Api
from tests.web.support import WAIT_SECONDS, Site, serving, wait_until


def test_overview_lists_problems_first_with_the_command_that_helps(site: Site, journals: Path) -> None:
    found = site.get("overview")["journals"]
    assert [journal["name"] for journal in found[:2]] == ["damaged", "torn"]
    assert {journal["name"] for journal in found[2:]} == {"orders", "events", "pages", "queues", "readings", "stores"}
    damaged, torn = found[:2]
    assert (damaged["health"], torn["health"]) == ("damaged", "torn")
    assert damaged["problems"][0]["command"] == f"logwright repair {journals / 'damaged'} --plan"
    assert "message 1500 is missing" in damaged["problems"][0]["text"]
    orders = next(journal for journal in found if journal["name"] == "orders")
    assert {lag["consumer"]: lag["lag"] for lag in orders["lags"]} == {"billing": 100, "report": 1800}
    assert sum(orders["spark"]) == 3000
    queues = next(journal for journal in found if journal["name"] == "queues")
    assert queues["depth"] == {"waiting": 39, "open": 1}


def test_journal_that_appears_is_found(tmp_path: Path) -> None:
    with serving(tmp_path) as site, site.events("live") as events:
        assert next(events)[1]["journals"] == []
        with sej.Writer(tmp_path / "new") as writer:
            writer.append(b"first")
        names = [journal["name"] for name, data in [next(events)] for journal in data["journals"]]
        assert names == ["new"]


@pytest.mark.parametrize("name", ["orders", "events", "queues", "stores", "readings", "pages"])
def test_rows_are_the_records_in_order_from_any_row(site: Site, name: str) -> None:
    total = site.get("journal", name=name)["rows"]
    whole = site.get("rows", name=name, row=0, count=500)["rows"][:300]
    for row in (0, 1, 57, total - 3):
        part = site.get("rows", name=name, row=row, count=3)["rows"]
        assert [one["row"] for one in part] == list(range(row, min(total, row + 3)))
        known = whole[row : row + 3]
        if len(known) == 3:
            assert part == known


def test_damage_is_a_row_of_its_own(site: Site) -> None:
    rows = site.get("rows", name="damaged", row=1499, count=3)["rows"]
    assert [row["row"] for row in rows if "damage" not in row] == [1499, 1501]
    (damage,) = (row for row in rows if "damage" in row)
    assert (damage["damage"], damage["position"], damage["size"]) == ("malformed", 49388, 121)


@pytest.mark.parametrize("name", ["orders", "events", "queues", "stores", "pages"])
def test_timeline_counts_all_records_with_a_time(site: Site, name: str) -> None:
    buckets = site.get("timeline", name=name, steps=50)["buckets"]
    records = site.get("rows", name=name, row=0, count=500)["rows"]
    total = site.get("journal", name=name)["rows"]
    timed = sum(record["time"] is not None for record in records) if total <= 500 else total
    assert sum(bucket["records"] for bucket in buckets) == timed
    assert len(buckets) <= 50


def test_damage_is_marked_on_the_timeline_and_in_the_map_of_its_file(site: Site) -> None:
    site.get("overview")  # a small journal is verified there
    (damage,) = site.get("timeline", name="damaged")["damages"]
    assert 1499 <= damage["row"] <= 1502
    ranges = [range for file in site.get("files", name="damaged")["files"] for range in file["ranges"]]
    assert [(range["start"], range["end"], range["kind"]) for range in ranges] == [(49388, 49509, "malformed")]
    torn = [range for file in site.get("files", name="torn")["files"] for range in file["ranges"]]
    assert [range["kind"] for range in torn] == ["torn_tail"]


def test_time_leads_to_the_row_of_the_first_record_from_then_on(site: Site) -> None:
    for name in ("orders", "stores", "pages"):
        middle = site.get("timeline", name=name, steps=4)["buckets"][2]["ms"]
        row = site.get("seek", name=name, since=str(middle * 1_000_000))["row"]
        before, after = site.get("rows", name=name, row=row - 1, count=2)["rows"]
        assert before["ms"] < middle <= after["ms"]


def test_filters_choose_by_key_text_and_condition(site: Site) -> None:
    found = site.get("search", name="orders", find="customer/ada", grep="gear", where="type = 1", count=3)["rows"]
    assert len(found) == 3
    assert all(row["key"] == "customer/ada" and "gear" in row["text"] and row["kind"] == "type 1" for row in found)
    decoded = site.get("search", name="orders", where="value.count > 38", decode="json", count=5)["rows"]
    assert all(json.loads(row["text"])["count"] > 38 for row in decoded)


def test_search_continues_where_it_ended(site: Site) -> None:
    whole = site.get("search", name="stores", find="truck/1", count=100)
    assert whole["next"] is None
    start, found = None, []
    while True:
        more: dict[str, Any] = {} if start is None else {"start": start}
        answer = site.get("search", name="stores", find="truck/1", count=7, **more)
        found += answer["rows"]
        start = answer["next"]
        if start is None:
            break
    assert found == whole["rows"]
    assert len(found) == 33


def test_record_is_shown_with_its_value_decoded_its_bytes_and_its_neighbours(site: Site) -> None:
    found = site.get("record", name="orders", number="3")
    assert json.loads(found["decoded"])["item"] == "bolt"
    assert found["decoding"] == "json"
    assert bytes.fromhex(found["hex"]).startswith(b'{"order": 10000')
    assert [row["number"] for row in found["neighbours"]] == ["1", "2", "3", "4", "5"]
    assert found["fields"]["timestamp"] == "1768464034741281211"  # exact, beyond the numbers of JavaScript
    near = site.get("record", name="damaged", number="1501")["neighbours"]
    assert [row.get("number", row.get("damage")) for row in near] == [
        "1499",
        "malformed",
        "1501",
        "1502",
        "1503",
    ]
    as_text = site.get("record", name="orders", number="3", decode="text")
    assert as_text["decoded"].startswith('{"order": 10000')


@pytest.mark.parametrize("name", ["orders", "events", "queues", "stores", "readings", "pages"])
def test_every_row_can_be_opened_in_full(site: Site, name: str) -> None:
    about = site.get("journal", name=name)
    for row in site.get("rows", name=name, row=5, count=2)["rows"]:
        found = site.get("record", name=name, part=about["part"], number=row["number"])
        assert (found["number"], found["text"]) == (row["number"], row["text"])


def test_condition_is_searched_in_steps(tmp_path: Path) -> None:
    numbers = pa.array(range(70_000))
    with sej.Writer(tmp_path / "orders") as writer:
        writer.append_batch(pa.record_batch({"value": pc.cast(numbers, pa.string())}))
    with serving(tmp_path) as site:
        ask = {"name": "orders", "where": "value = '69999'", "count": 5}
        found: list[str] = []
        start: dict[str, str] = {}
        while True:
            answer = site.get("search", **ask, **start)
            found += [row["number"] for row in answer["rows"]]
            if answer["next"] is None:
                break
            start = {"start": answer["next"]}
        assert found == ["69999"]  # once: a step ends where the next one begins
        assert site.get("search", **ask, until="0")["rows"] == []


@pytest.mark.parametrize(
    ("value", "decoding", "decoded"),
    [
        (b'{"a": [1, 2]}', "json", {"a": [1, 2]}),
        (b"\x82\xa1a\x01\xa1b\x92\x02\x03", "msgpack", {"a": 1, "b": [2, 3]}),
        (bonjson.encode({"a": 1}), "bonjson", {"a": 1}),
        (b"two\nlines", "text", "two\nlines"),
        (b"\xff\xfe", "text", "\\xff\\xfe"),
    ],
)
def test_value_is_decoded_by_what_fits(tmp_path: Path, value: bytes, decoding: str, decoded: Any) -> None:
    with sej.Writer(tmp_path / "values") as writer:
        writer.append(value)
    with serving(tmp_path) as site:
        found = site.get("record", name="values", number="0")
        text = found["decoded"]
        assert (found["decoding"], json.loads(text) if isinstance(decoded, dict) else text) == (decoding, decoded)
        assert bytes.fromhex(found["hex"]) == value


def test_value_of_avro_is_decoded_by_its_schema(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "avro") as writer:
        writer.append(b"\x06abc")
    with serving(tmp_path) as site:
        found = site.get("record", name="avro", number="0", decode="avro", schema='"string"')
        assert (found["decoding"], found["decoded"]) == ("avro", "abc")
        assert "schema" in site.get("record", name="avro", number="0", decode="avro")["undecoded"]


def test_queue_shows_its_items_and_the_life_of_one(site: Site) -> None:
    found = site.get("queue", name="queues", part="mail")
    assert found["states"] == {"done": 100, "open": 1, "waiting": 19}
    assert [item["item"] for item in found["open"]] == [101]
    assert [item["item"] for item in found["head"]][:2] == [102, 103]
    assert found["open"][0]["reserved"] == "mail@6819"
    last = {"row": 330, "ms": 1768467901859, "waiting": 19, "open": 1, "expired": 0, "done": 100}
    assert found["depth"][-1] == last
    life = site.get("history", name="queues", part="mail", key=found["open"][0]["place"])
    assert [change["event"] for change in life["changes"]] == ["added", "reserved"]
    jobs = site.get("queue", name="queues", part="jobs")
    assert jobs["states"] == {"done": 40, "expired": 20}
    assert [jobs["depth"][-1][state] for state in ("waiting", "expired", "done")] == [0, 20, 40]
    assert [point["expired"] for point in jobs["depth"]] == sorted(point["expired"] for point in jobs["depth"])


def test_items_with_a_delay_are_counted_apart_from_open_ones(tmp_path: Path) -> None:
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
        queue.put(b"now")
        queue.put(b"open")
        queue.reserve()
        for _ in range(3):
            queue.put(b"later", delay=3600.0)
    with serving(tmp_path) as site:
        (found,) = site.get("overview")["journals"]
        assert found["depth"] == {"waiting": 1, "open": 1, "delayed": 3}
        jobs = site.get("queue", name="queues", part="jobs")
        assert (jobs["states"], jobs["delayed"]) == ({"open": 1, "waiting": 1}, 3)
        held = site.get("queue", name="queues", part="jobs~delayed")
        assert (held["states"], held["delayed"], len(held["open"])) == ({"open": 3}, None, 3)
        assert all(item["expires"] > item["added"] for item in held["open"])


def test_delayed_items_are_looked_for_where_the_queue_keeps_them() -> None:
    assert delayed_name("q") == "q" + catalog.HOLDING


def test_lost_records_are_not_counted(site: Site) -> None:
    damaged = next(one for one in site.get("overview")["journals"] if one["name"] == "damaged")
    about = site.get("journal", name="damaged")
    assert (damaged["records"], about["rows"], about["missing"]) == (2999, 3000, 1)
    assert site.get("journal", name="orders")["missing"] == 0


def test_free_bytes_of_a_file_are_shown(tmp_path: Path) -> None:
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
        for number in range(3):
            queue.put(b"item %d" % number)
        queue.get()
    with sej.Writer(tmp_path / "orders") as writer:
        writer.append(b"value")
    (segment,) = (tmp_path / "orders" / "jnl").iterdir()
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"torn" + bytes(4092))
    with serving(tmp_path) as site:
        site.get("overview")
        (jobs,) = site.get("files", name="queues")["files"]
        (free,) = jobs["ranges"]
        assert (free["start"], free["kind"]) == (0, "free")
        life = site.get("queue", name="queues")["head"][0]["place"]
        assert life == f"jobs@{free['end']}"  # the first item that is not done
        (orders,) = site.get("files", name="orders")["files"]
        kinds = [(range["start"], range["end"], range["kind"]) for range in orders["ranges"]]
        assert kinds == [(size, size + 4, "torn_tail"), (size + 4, size + 4096, "free")]


def test_store_is_shown_at_any_moment_and_two_moments_are_compared(site: Site) -> None:
    now = {key["key"]: key["value"] for key in site.get("store", name="stores")["keys"]}
    at = "2026-01-15T09:00:00Z"
    then = {key["key"]: key["value"] for key in site.get("store", name="stores", at=at)["keys"]}
    assert then != now
    changed = site.get("difference", name="stores", since=at)
    assert {**then, **changed["added"], **{k: v["after"] for k, v in changed["changed"].items()}} == {
        **now,
        **changed["removed"],
    }
    assert changed["total"] == sum(len(changed[what]) for what in ("added", "changed", "removed"))
    history = site.get("history", name="stores", key="truck/1")
    assert history["total"] == 33
    assert history["changes"][-1]["value"] == now["truck/1"]


def test_segments_pages_and_shards_are_shown(site: Site) -> None:
    segments = site.get("segments", name="readings")["segments"]
    assert [segment["segment"] for segment in segments if segment["recovered"]] == [3, 4, 5]
    pages = site.get("pages", name="pages")
    assert (pages["total"], pages["outcomes"]) == (3, {"completed": 116, "rolled_back": 7})
    versions = site.get("page", name="pages", key=str(pages["pages"][0]["page"]))["changes"]
    assert len(versions) == pages["pages"][0]["versions"]
    assert versions[0]["ranges"][0]["hex"].startswith("3030303030303031")
    assert sum(part["records"] for part in site.get("shards", name="events")["parts"]) == 600


def test_sql_answers_one_select_over_journals_and_reads_no_files(site: Site, journals: Path) -> None:
    found = site.get("sql", query="SELECT state, count(*) AS n FROM 'queues:items' GROUP BY ALL ORDER BY n")
    assert [column["name"] for column in found["columns"]] == ["state", "n"]
    assert found["rows"] == [["open", 1], ["waiting", 19], ["expired", 20], ["done", 140]]
    marker = journals / ".logwright-demo"
    hostile = [
        f"SELECT * FROM read_text('{marker}')",
        f"SELECT * FROM '{marker}'",
        f"SELECT * FROM '{journals / 'orders'}'",
        f"COPY (SELECT 1) TO '{journals / 'written.csv'}'",
        f"ATTACH '{journals / 'written.db'}'",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "INSTALL httpfs",
        "SELECT * FROM catalog",
    ]
    for query in hostile:
        status, error = site.refused("sql", query=query)
        assert status == 400, query
        assert "Made by" not in error
    assert sorted(path.name for path in journals.iterdir() if "written" in path.name) == []


def test_query_ends_when_its_browser_leaves(journals: Path) -> None:
    query = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range < b.range AND sqrt(a.range) > 3"
    with serving(journals) as site:
        connection = HTTPConnection(site.server.address.host, site.server.address.port, timeout=WAIT_SECONDS)
        connection.request("GET", f"/api/sql?{urlencode({'query': query})}")
        wait_until(lambda: site.server.api.busy == 1)
        connection.close()
        wait_until(lambda: site.server.api.busy == 0)  # long before the minute that a query may take


def test_result_is_downloaded_whole_as_csv_and_parquet(site: Site) -> None:
    query = "query=SELECT+sequence,+key+FROM+%27orders%27+ORDER+BY+sequence"
    csv = site.ask(f"/api/sql.csv?{query}")
    assert csv.headers["content-disposition"] == 'attachment; filename="result.csv"'
    assert csv.body.decode().splitlines()[:2] == ["sequence,key", "0,customer/dalia"]
    assert len(csv.body.splitlines()) == 3001
    table = pq.read_table(io.BytesIO(site.ask(f"/api/sql.parquet?{query}").body))
    assert table.column("sequence").to_pylist() == list(range(3000))


def test_check_reports_progress_problems_and_the_plan(site: Site) -> None:
    with site.events("check", name="damaged") as events:
        found = dict(events_until(events, "checked"))["checked"]
    assert [problem["position"] for problem in found["problems"]] == [49388]
    assert "lost 1 record: message 1500" in found["plan"]["lines"][0]
    assert found["command"].startswith("logwright repair ")


def events_until(events: Iterator[tuple[str, Any]], last: str) -> Iterator[tuple[str, Any]]:
    for name, data in events:
        yield name, data
        if name == last:
            return


def test_requests_that_are_wrong_are_refused_with_a_reason(site: Site) -> None:
    assert site.refused("journal", name="../etc")[0] == 404
    assert site.refused("journal") == (400, "the parameter name is missing")
    assert site.refused("rows", name="orders", row="x")[0] == 400
    assert site.refused("rows", name="orders", wrong="1")[0] == 400
    assert site.refused("record", name="orders", number="99999999")[0] == 404
    assert site.refused("search", name="orders", grep="(")[0] == 400
    assert site.refused("store", name="stores", at="yesterday-ish")[0] == 400


def test_every_request_is_described(site: Site) -> None:
    found = site.get("openapi.json")
    assert found["openapi"] == "3.1.0"
    assert set(found["paths"]) == {f"/api/{endpoint.path}" for endpoint in site.server.api.endpoints}
    assert site.ask("/api").json() == found
    operations = [path["get"] for path in found["paths"].values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for endpoint in site.server.api.endpoints:  # what is described is what is taken
        taken = inspect.signature(endpoint.call).parameters
        required = {name for name, parameter in taken.items() if parameter.default is inspect.Parameter.empty}
        assert {parameter.name for parameter in endpoint.parameters} == set(taken), endpoint.path
        assert {parameter.name for parameter in endpoint.parameters if parameter.required} == required, endpoint.path
    parameters = found["paths"]["/api/rows"]["get"]["parameters"]
    assert [(one["name"], one["required"]) for one in parameters][:2] == [("name", True), ("part", False)]


def test_nothing_below_the_root_changes(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    assert main(["demo", str(root)]) == 0
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}
    with serving(root) as site:
        for name in site.get("overview")["journals"]:
            about = site.get("journal", name=name["name"])
            for view in [*about["views"], "files", "timeline", "rows"]:
                site.get(view, name=name["name"])
            with site.events("check", name=name["name"]) as events:
                list(events_until(events, "checked"))
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()} == before


def test_journal_that_is_read_in_steps_has_all_rows_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outline, "_PASS_SECONDS", 0.0)
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
        for _ in range(40):
            queue.put_many([b"%d" % number for number in range(5000)])
    api = Api(tmp_path)
    while not (about := api.journal("queues"))["complete"]:
        assert 0 < about["rows"] < 200_000
    assert about["rows"] == 200_000


def test_journal_grows_shrinks_and_is_replaced_under_the_page(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
            for number in range(1000):
                queue.put(b"%d" % number)
            assert site.get("journal", name="queues")["rows"] == 1000
            queue.put(b"last")
            assert site.get("rows", name="queues", row=1000, count=5)["rows"][0]["text"] == "last"
        for path in (tmp_path / "queues").iterdir():
            if path.is_file():
                path.unlink()
        with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
            queue.put(b"other")
        assert [row["text"] for row in site.get("rows", name="queues", row=0, count=5)["rows"]] == ["other"]
