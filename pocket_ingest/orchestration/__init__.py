"""Dagster: assets, sensors, jobs and resources. The only package that imports dagster.

Here: translations between the engine and Dagster, as thin as they can be.
Not here: any rule about files, records or jobs (core).
"""
