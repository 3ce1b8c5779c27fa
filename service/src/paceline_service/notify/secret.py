"""A secret from a setting or from a file; it is never shown."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from paceline.errors import ConfigError

MAX_BYTES = 16 * 1024
_NO_FILE = Path()
"""What an empty variable makes of a path."""


class Secret:
    """Gives its value when it is used: a file may be replaced while the collector runs.

    Args:
        name: of the setting, for errors.
        value: the secret, or nothing.
        file: where it stands instead.
    """

    def __init__(self, name: str, value: SecretStr | None, file: Path | None) -> None:
        self._name = name
        self._value = value.get_secret_value().strip() if value is not None else ""
        self._file = file if file is not None and file != _NO_FILE else None

    @classmethod
    def of(cls, name: str, value: str) -> Secret:
        """Return one whose value is known already."""
        return cls(name, SecretStr(value), None)

    def __repr__(self) -> str:
        """Return what may be seen of it."""
        return f"Secret({self._name}, {'set' if self else 'unset'})"

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._value) or self._file is not None

    def lines(self) -> list[str]:
        """Return the secrets: a file may hold several, each on its line.

        Raises:
            ConfigError: there is none, or its file cannot be read.
        """
        text = self._value
        if self._file is not None:
            try:
                with self._file.open("rb") as file:
                    text = file.read(MAX_BYTES).decode("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"{self._name}: {self._file} cannot be read: {type(error).__name__}; give a "
                    "file that the collector's user can read"
                ) from error
        found = [line.strip() for line in text.splitlines() if line.strip()]
        if not found:
            raise ConfigError(f"{self._name} is empty; set it, or leave its channel out")
        return found

    def first(self) -> str:
        """Return the secret.

        Raises:
            ConfigError: as ``lines``.
        """
        return self.lines()[0]
