"""The only folder that imports pyspark: the JVM's life, and boxes compiled to DataFrames."""
