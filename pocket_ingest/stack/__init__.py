"""The local stack: Postgres, Dagster's webserver and daemon, as one command.

Here: starting, watching and stopping processes, and telling a person what happens.
Not here: what any of them does.
"""
