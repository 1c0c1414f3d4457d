"""Running a plan: MIG operators, window stores, ticks."""
