"""A program of Spark that knows nothing of Logwright: it reads journals with the sources that Spark finds by itself.

    without_setup.py ROOT       on a session of Spark, and then on one of Spark Connect; in the directory above ROOT

Paths are relative, and times are those of the time zone in TZ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

PLACES = {"sej": "orders", "kestrel": "queues", "appendfile": "readings", "versioned": "stores", "yeltsin": "pages"}

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


def count(spark: Any, root: str) -> dict[str, Any]:
    found = {name: spark.read.format(name).load(f"{root}/{place}").count() for name, place in PLACES.items()}
    found["logwright"] = spark.read.format("logwright").load(f"{root}/queues").count()
    found["filtered"] = spark.read.format("sej").load(f"{root}/orders").filter("offset < 10").count()
    return found


def look(spark: Any, root: str, copy: str) -> dict[str, Any]:
    found = {}
    spark.sql(f"CREATE TEMPORARY VIEW orders USING sej OPTIONS (path '{root}/orders')")
    found["view"] = spark.sql("SELECT count(*) FROM orders WHERE type = 1").first()[0]
    first = spark.table("orders").filter("offset = 7").selectExpr("timestamp", "string(timestamp) AS text").first()
    found["time"] = first.text
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    table = spark.read.format("sej").option("pushFilters", "true").load(f"{root}/orders")
    found["until"] = table.filter(f"timestamp <= TIMESTAMP '{first.text}'").count()
    few = spark.table("orders").filter("offset < 3").select("value", "timestamp").coalesce(1)
    few.write.format("sej").mode("append").save(copy)
    return found


def main(root: str) -> None:
    found = {}
    for name, address in {"classic": {"spark.master": "local[1]"}, "connect": {"spark.remote": "local[2]"}}.items():
        builder = SparkSession.builder
        for key, value in {**SETTINGS, **address}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        found[name] = look(spark, root, name) | (count(spark, root) if name == "classic" else {})
        spark.stop()
    print("FOUND", json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]).name)
