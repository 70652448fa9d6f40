"""Tools for tests: conformance, the serial oracle, the plan checker, random programs."""
