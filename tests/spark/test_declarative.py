"""The example of a declarative pipeline runs as it is, on the server of Spark Connect that the tests share."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from logwright import sej
from logwright.cli import main
from tests.spark.driver import run_to_the_end

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"


def test_example_makes_a_streaming_table_and_a_materialized_view(spark: Any, server: str, tmp_path: Path) -> None:
    example = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, example)
    assert main(["demo", str(example / "journals")]) == 0
    text = (EXAMPLE / "spark-pipeline.yml").read_text()
    assert "file:///tmp/logwright-declarative" in text
    (example / "spark-pipeline.yml").write_text(text.replace("/tmp/logwright-declarative", f"{tmp_path}/storage"))
    try:
        code, printed = run_to_the_end(
            [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--remote", server],
            example,
            {**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert code == 0, printed
        assert "Run is COMPLETED." in printed
        messages = list(sej.Reader(example / "journals" / "orders"))
        found = spark.table("orders").orderBy("offset").collect()
        assert [(row.offset, row.customer, row.detail) for row in found] == [
            (message.offset, message.key.decode(), message.value.decode()) for message in messages
        ]
        counted = {row.customer: row.orders for row in spark.table("customers").collect()}
        assert counted == Counter(message.key.decode() for message in messages)
    finally:
        for table in ("orders", "customers"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
