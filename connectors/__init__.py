"""Spark, DuckDB and PostgreSQL: sessions, sources and sinks."""
