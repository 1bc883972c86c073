"""How fast, against what: ratios measured in one run, never a limit that a test holds.

Here: ``python -m benchmarks NAME``; docs/performance.md says what each one measures.
Not here: tests, which never depend on how fast a machine is.
"""
