"""The torture: imports whose processes are killed at random moments, compared with a clean run.

Here: the workload, the processes that are killed, the one that kills them, and the comparison.
Not here: faults that are injected inside one process (the integration tests).
"""
