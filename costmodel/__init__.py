"""Pure numbers: stream rates, relation sizes, operator costs, plan costs and the calibration profile."""
