"""The streaming table `orders`: one row per message of the journal."""

from pathlib import Path
from typing import Any

from pyspark import pipelines as dp

JOURNAL = Path(__file__).resolve().parents[1] / "journals" / "orders"


@dp.table
def orders() -> Any:
    messages = spark.readStream.format("sej").load(str(JOURNAL))  # noqa: F821 - spark-pipelines provides `spark`
    return messages.selectExpr("offset", "timestamp", "string(key) AS customer", "string(value) AS detail")
