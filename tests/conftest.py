"""Fixtures for all tests."""

from hypothesis import settings

from tests.spark_fixture import spark

__all__ = ["spark"]

settings.register_profile("penstock", deadline=None)  # what an example takes says more about the machine
settings.load_profile("penstock")
