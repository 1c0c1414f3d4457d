"""Prints a CQ4-style n-way query: python examples/smartplug/nway.py 5"""

import sys

from service.bench.nway import nway_query

print(nway_query(int(sys.argv[1]) if len(sys.argv) > 1 else 5), end="")
