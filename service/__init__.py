"""The ways in: the penstock command, the REST API, the benches."""
