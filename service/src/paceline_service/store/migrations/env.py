"""Alembic's entry: it runs within the connection that ``store.migrate`` opened."""

from __future__ import annotations

from alembic import context

from paceline_service.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
