"""A program of Spark that knows nothing of Logwright: it reads journals with the sources that Spark finds by itself."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

root = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
places = {"sej": "orders", "kestrel": "queues", "appendfile": "readings", "versioned": "stores", "yeltsin": "pages"}
found = {name: spark.read.format(name).load(f"{root}/{place}").count() for name, place in places.items()}
found["logwright"] = spark.read.format("logwright").load(f"{root}/queues").count()
found["filtered"] = spark.read.format("sej").load(f"{root}/orders").filter("offset < 10").count()
spark.sql(f"CREATE TEMPORARY VIEW orders USING sej OPTIONS (path '{root}/orders')")
found["view"] = spark.sql("SELECT count(*) FROM orders WHERE type = 1").first()[0]  # type: ignore[index]
print("FOUND", json.dumps(found))
spark.stop()
