"""Fixtures for all tests."""

import os
from tempfile import mkdtemp

from hypothesis import settings

from tests.spark_fixture import spark

__all__ = ["spark"]

settings.register_profile("penstock", deadline=None)  # what an example takes says more about the machine
settings.load_profile("penstock")

# A profile or observations of the person who runs the tests are not theirs to see or to change.
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = mkdtemp(prefix="penstock-tests-")
