"""Nexmark's queries in Flink, beside Medusa's run of them.

Kind to Flink, as its suite is: each table is one file of CSV in order, a query's rows are dropped
(connector blackhole), state is on the heap, and no checkpoint is made.
"""
