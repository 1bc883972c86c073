"""PostgreSQL: the ledger, the loader and the datasets' tables, over psycopg 3.

Here: every SQL statement of the project.
Not here: rules about records and files (core) or how a server is started (embedded_postgres.py).
"""
