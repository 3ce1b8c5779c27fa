"""The tables of messages about incidents, and of what was done to nodes."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from paceline_service.store.base import Base, BigId


class Notification(Base):
    """What one channel knows of one incident, and the message that is on its way to it.

    There is at most one such message: what happens meanwhile is told when it has arrived.
    """

    __tablename__ = "notifications"
    __table_args__ = (Index(None, "state"),)
    incident_id: Mapped[int] = mapped_column(
        ForeignKey("incidents.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    channel: Mapped[str] = mapped_column(String(64), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    """waiting: on its way; told: it arrived; failed: it was given up; over: and nothing follows."""
    sequence: Mapped[int] = mapped_column(Integer)
    """Of the newest message; part of its idempotency key."""
    delivered: Mapped[int] = mapped_column(Integer, default=0)
    """How many have arrived."""
    message: Mapped[str] = mapped_column(Text)
    """The newest message as JSON (``notify/message.py``)."""
    thread: Mapped[str] = mapped_column(String(256), default="")
    """What the receiver calls the first message: later ones edit it or follow it."""
    uncertain: Mapped[bool] = mapped_column(Boolean, default=False)
    """An attempt may have arrived although that was not heard: it is repeated as it was."""
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    made_wall_ns: Mapped[int] = mapped_column(BigInteger)
    next_wall_ns: Mapped[int] = mapped_column(BigInteger)
    """Not before then; while it is being sent, nobody else tries until then."""
    told_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
    last_error: Mapped[str] = mapped_column(String(512), default="")


class NodeAction(Base):
    """Something that was done to a node, or would have been; it outlives its incident."""

    __tablename__ = "node_actions"
    __table_args__ = (
        Index(None, "incident_id"),
        Index(None, "begun_wall_ns"),
        Index(None, "state"),
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    incident_id: Mapped[int] = mapped_column(BigInteger)
    job: Mapped[str] = mapped_column(String(128))
    node: Mapped[str] = mapped_column(String(256))
    action: Mapped[str] = mapped_column(String(32))
    mode: Mapped[str] = mapped_column(String(16))
    """dry-run or execute."""
    state: Mapped[str] = mapped_column(String(16))
    """begun, done, failed, refused."""
    takes_capacity: Mapped[bool] = mapped_column(Boolean)
    """Counts towards the limit of nodes in a window."""
    request: Mapped[str] = mapped_column(Text)
    """Exactly what is sent or run, as JSON; never a secret."""
    result: Mapped[str] = mapped_column(Text, default="")
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    begun_wall_ns: Mapped[int] = mapped_column(BigInteger)
    ended_wall_ns: Mapped[int | None] = mapped_column(BigInteger)
