"""The import engine: intake, reading, validation, loading plan, exporting, job states.

Here: every rule about files, records and outcomes, over ports that adapters implement.
Not here: Dagster, databases, object stores, HTTP. Nothing in this package imports dagster,
psycopg, boto3, celery or fastapi; a test holds it.
"""
