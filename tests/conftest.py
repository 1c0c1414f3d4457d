"""Fixtures for all tests."""

import os

from hypothesis import settings

from tests.spark_fixture import spark

__all__ = ["spark"]

settings.register_profile("penstock", deadline=None)  # what an example takes says more about the machine
settings.load_profile("penstock")

# A profile that was measured on this machine would change the plans that tests expect of the shipped one.
os.environ["XDG_CONFIG_HOME"] = os.devnull  # holds no file
