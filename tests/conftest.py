"""Fixtures for all tests."""

from tests.spark_fixture import spark

__all__ = ["spark"]
