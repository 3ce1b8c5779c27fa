"""What all models have in common."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData
from sqlalchemy.orm import DeclarativeBase

BigId = BigInteger().with_variant(Integer, "sqlite")
"""SQLite's automatic row id must be of the type INTEGER."""


class Base(DeclarativeBase):
    """Base of the models; constraints are named, so that migrations can drop them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
