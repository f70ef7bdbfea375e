"""Words of scenarios that were renamed. An old word is an error that names the new one."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.core.errors import InputError, Where

RENAMED: Mapping[str, Mapping[str, str]] = {
    "target": {"first_token": "ttft", "next_token": "itl"},
}
"""By the kind of place: each old word and the new one. A place is ``target`` for the metrics of targets, a class of the
scenario's schema for the keys of such a mapping, or a key for its values."""


def renamed_error(place: str, old: str, where: Where | None = None) -> InputError | None:
    """Return the error for an old word in a kind of place; None if the word is not in the table."""
    new = RENAMED.get(place, {}).get(old)
    return None if new is None else InputError(f"'{old}' was renamed to '{new}'", where=where, expected=f"'{new}'")
