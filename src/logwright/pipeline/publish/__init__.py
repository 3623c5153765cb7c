"""How the tables of a batch become visible: Parquet directories, Delta and Iceberg."""
