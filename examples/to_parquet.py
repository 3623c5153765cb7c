"""A journal as an Arrow table, as Parquet, and in SQL (pip install 'logwright[sql]')."""

import json

import logwright
from logwright import arrow, sej

with sej.Writer("orders") as writer:
    for number in range(1000):
        writer.append(json.dumps({"cents": number}).encode(), key=b"customer %d" % (number % 3))

table = arrow.to_arrow("orders", columns=["offset", "key"])  # other columns are not decoded
print(table.num_rows, "rows")
print(arrow.to_parquet("orders", "orders.parquet").rows, "rows in orders.parquet")
print(logwright.sql("SELECT count(DISTINCT key) AS customers FROM 'orders'"))
