"""The texts of a file by their numbers; looked up as they are asked for, some are kept."""

from __future__ import annotations

from functools import lru_cache

from paceline.errors import InputError
from paceline_service.importers.nsys.database import Database

MAX_TEXTS = 4_000_000
"""Of a table that has to be read whole, because it is not ordered by its numbers."""
_TABLE = "StringIds"


class Strings:
    """Reads ``StringIds``, which may hold millions of texts that nobody needs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all: dict[object, str] | None = None
        if (_TABLE, "id") not in database.keyed:
            self._all = {}
            for rows in database.rows(_TABLE, ["id", "value"]):
                self._all.update((row[0], row[1]) for row in rows if isinstance(row[1], str))
                if len(self._all) > MAX_TEXTS:
                    raise InputError(
                        f"{database.path}: its table StringIds has no key and over {MAX_TEXTS:,} "
                        "rows; export it again with a current nsys"
                    )
        self.of = lru_cache(maxsize=1 << 17)(self._look_up)

    def _look_up(self, number: object) -> str:
        """Return the text of a number; empty where there is none."""
        if self._all is not None:
            return self._all.get(number, "")
        if type(number) is not int or not -(1 << 63) <= number < 1 << 63:
            return ""
        return self._database.text(_TABLE, "id", "value", number)
