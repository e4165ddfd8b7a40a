"""Alembic's environment: the connection and the tables are given by who runs a command."""

from alembic import context

given = context.config.attributes
context.configure(connection=given["connection"], target_metadata=given["tables"], compare_type=True, compare_server_default=True)
with context.begin_transaction():
    context.run_migrations()
