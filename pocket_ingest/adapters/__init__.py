"""Adapters: what the engine's ports are on real systems (Postgres, S3, a folder).

Here: one module or package per system, and the translation of its errors into ours.
Not here: rules about files, records and outcomes (``pocket_ingest.core``).
"""
