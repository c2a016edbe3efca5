"""Nexmark's queries in Flink, beside Medusa's run of them.

The texts are those of `queries/`. Three are changed so that their answers can be checked, like
Medusa's: q12 and q13 in event time, q14 without the benchmark's function in Java. Flink refuses q6.

* The settings are those of the suite: small batches, distinct aggregates split, a watermark four
  seconds behind. As many tasks run at a time as Spark runs at a peer.
* In Flink's favour: a query's rows are dropped (connector blackhole), state is on the heap, and no
  checkpoint is made. Its cluster runs, as Medusa's peer does.
* Against Flink: rows come from CSV, since Flink's package reads no Parquet, and from one file for
  each table, since of several, read at once, some would come late.
* Each query runs once more, into files with insertions and retractions; the remaining rows are
  compared.
"""
