"""A job for `spark-submit` that uses a little of everything that tests use; its loaded classes are archived.

    spark-submit everything.py DIRECTORY

It proves nothing: see `tests/spark/quick.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from logwright.sej import Writer
from logwright.spark import session


def do_everything(directory: Path) -> None:
    with Writer(directory / "journal") as writer:
        for number in range(50):
            writer.append(b"value %d" % number, b"key", number % 3, number)
    spark = session(spark_ui_enabled="false", spark_sql_shuffle_partitions="2", spark_driver_host="127.0.0.1")
    spark.sparkContext.setLogLevel("OFF")
    journal = str(directory / "journal")
    frame = spark.read.format("sej").load(journal)
    table = str(directory / "table")
    frame.selectExpr("offset", "type", "string(key) key").write.partitionBy("type").parquet(table)
    spark.read.parquet(table).where("offset > 3").groupBy("type").count().orderBy("type").collect()
    frame.write.format("sej").option("shardBit", 1).mode("append").save(str(directory / "copy"))
    spark.createDataFrame(frame.rdd.mapPartitions(lambda rows: rows), frame.schema).collect()
    rows = spark.readStream.format("sej").load(journal)
    writing = rows.writeStream.format("sej").option("checkpointLocation", str(directory / "checkpoint"))
    writing.trigger(availableNow=True).start(str(directory / "stream")).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    do_everything(Path(sys.argv[1]))
