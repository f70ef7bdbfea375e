"""Collects the arguments of one command, each checked against the list of documented ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windtunnel.core.results.deployment import Argument, Unexpressed
from windtunnel_models.engines.arguments import Documented, EngineArguments


class UndocumentedArgumentError(Exception):
    """An argument, or a value of one, that is not in the list of documented ones: a bug of ours."""


class Arguments:
    """The arguments of one command as they are found.

    Every argument, every key of a JSON value or of the file of options, every environment variable, and every value of
    those that have choices must be documented; ``UndocumentedArgumentError`` otherwise.
    """

    def __init__(self, known: EngineArguments) -> None:
        self.known = known
        self.flags: list[Argument] = []
        self.options: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self.unexpressed: list[Unexpressed] = []
        self.option_keys: list[str] = []
        self.worker_flags: list[Argument] | None = None
        """Further flags of the nodes of a replica other than the first; None if a replica has one node."""

    def flag(self, name: str, value: object = None) -> None:
        """Add a flag, without a value if it is a switch."""
        documented = self._find(self.known.flags, name, value)
        self.flags.append(Argument(name, None if value is None else str(value), documented.key))

    def listen(self) -> None:
        """Add the address and the port at which the server listens."""
        self.flag("--host", "0.0.0.0")  # noqa: S104  a container listens on its address in the cluster
        self.flag("--port", self.known.port)

    def worker_flag(self, name: str) -> None:
        """Add a switch for the nodes of a replica other than the first."""
        documented = self._find(self.known.flags, name, None)
        self.worker_flags = [*(self.worker_flags or []), Argument(name, None, documented.key)]

    def json(self, name: str, value: Mapping[str, object]) -> None:
        """Add a flag whose value is a JSON object."""
        documented = self._find(self.known.flags, name, None)
        for key, inner in value.items():
            if key not in documented.fields:
                raise UndocumentedArgumentError(f"{name} of {self.known.title} has no documented key '{key}'")
            if f"{name}.{key}" in self.known.flags:
                self._find(self.known.flags, f"{name}.{key}", inner)
        self.flags.append(Argument(name, json.dumps(dict(value)), documented.key))

    def option(self, path: str, value: object) -> None:
        """Set a key of the file of options; dots separate its levels."""
        documented = self._find(self.known.options, path, value)
        *outer, last = path.split(".")
        at = self.options
        for part in outer:
            at = at.setdefault(part, {})
        at[last] = value
        if documented.key is not None and documented.key not in self.option_keys:
            self.option_keys.append(documented.key)

    def variable(self, name: str, value: str) -> None:
        """Set an environment variable."""
        self._find(self.known.environment, name, None)
        self.environment[name] = value

    def note(self, key: str, text: str) -> None:
        """Name something about a key of the scenario that no argument expresses."""
        self.unexpressed.append(Unexpressed(key, text))

    def value(self, name: str, ours: str) -> str | None:
        """Return the engine's word for ``ours`` as the value of a flag or a key of options; None if it has none."""
        documented = self.known.flags.get(name) or self.known.options[name]
        return documented.values.get(ours)

    def kv_dtype(self, name: str, wanted: str | None) -> None:
        """State the number format of the KV cache by a flag or a key of options; None leaves it to the engine."""
        if wanted is None:
            return
        value = self.value(name, wanted)
        if value is None:
            self.note("kv_dtype", f"{wanted}: {self.known.title} has no such format of the KV cache")
        elif name in self.known.flags:
            self.flag(name, value)
        else:
            self.option(name, value)

    @property
    def expressed(self) -> set[str]:
        """The keys of the scenario that are expressed or named so far."""
        stated = {argument.key for argument in self.flags if argument.key is not None}
        return stated | set(self.option_keys) | {note.key for note in self.unexpressed}

    def _find(self, documented: Mapping[str, Documented], name: str, value: object) -> Documented:
        found = documented.get(name)
        if found is None:
            raise UndocumentedArgumentError(
                f"'{name}' is not in the list of documented arguments of {self.known.title}"
            )
        if found.choices and value is not None and value not in found.choices:
            raise UndocumentedArgumentError(f"{value!r} is not a documented value of {name} of {self.known.title}")
        return found
