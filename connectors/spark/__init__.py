"""Spark as the stream engine: session, sources, SPE operators, their state, and the native emission."""
