"""How Alembic runs this project's migrations: on the connection that it is handed."""

from alembic import context

SCHEMA = "pocket"

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="migrations", version_table_schema=SCHEMA)
with context.begin_transaction():
    context.run_migrations()
