"""Answers the changes of one open page: a first look at once, then curves, the whole scenario, and what else fits."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.explorer.controls import Control
from windtunnel.explorer.design import Changes
from windtunnel.explorer.figures import Seen
from windtunnel.explorer.lanes import Lane, LaneError
from windtunnel.explorer.look import FINER, Look, points
from windtunnel.planning.load_curve import knee

_QUIET_S = 0.4
"""Time without a change after which whole scenarios are simulated."""
_AT_ONCE = 3
"""Values of a control that are checked in one call, so that a first look of another design does not wait for long."""
_KEPT = 2000
"""Looks that are kept, so that what was seen before is there at once."""

Send = Callable[[dict[str, Any]], None]


@dataclass
class Workshop:
    """What all pages share: the workers, what they have seen, and what is compiled."""

    quick: Lane
    thorough: Lane
    controls: list[Control]
    compiled: set[str] = field(default_factory=set)
    interpreted: set[str] = field(default_factory=set)
    """What the compiled engine does not support, such as policies that do not compile."""
    _ready: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _seen: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    async def see(self, lane: Lane, look: Look) -> Seen:
        """Return a look, from memory if it was seen before."""
        key = _key("look", look.changes, look.whole, look.jobs, look.load, look.intervals, sorted(look.compiled))
        return await self._kept(key, lane, "see", look)  # type: ignore[no-any-return]

    async def refusals(self, changes: Changes, control: Control) -> dict[str, str]:
        """Return which values of a control do not fit a design, with the reasons."""
        name = control.name
        found: dict[str, str] = {}
        others = {k: v for k, v in changes.items() if k not in (name, "load") and not k.startswith("targets")}
        values = [option.value for option in control.options]
        for first in range(0, len(values), _AT_ONCE):
            some = values[first : first + _AT_ONCE]
            found |= await self._kept(_key("refusals", others, name, some), self.quick, "refusals", others, name, some)
        # If no value fits, the reason is in another control.
        return found if len(found) < len(values) else {}

    async def _kept(self, key: str, lane: Lane, method: str, *arguments: object) -> Any:
        if key not in self._seen:
            self._seen[key] = await lane.call(method, *arguments)
            while len(self._seen) > _KEPT:
                self._seen.popitem(last=False)
        self._seen.move_to_end(key)
        return self._seen[key]

    def make_ready(self, key: str, changes: Changes) -> asyncio.Future[None]:
        """Compile the engine for designs with this key, in both workers; return when that is done."""
        task = self._ready.get(key)
        if task is None or (task.done() and task.exception() is not None):
            task = self._ready[key] = asyncio.create_task(self._make_ready(key, changes))
        return asyncio.shield(task)

    async def _make_ready(self, key: str, changes: Changes) -> None:
        if await self.thorough.call("make_ready", changes):
            await self.quick.call("make_ready", changes)
            self.compiled.add(key)
        else:
            self.interpreted.add(key)

    def close(self) -> None:
        """End the workers."""
        self.quick.close()
        self.thorough.close()


def _key(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)


class Session:
    """The designs of one page. The newest change of a design replaces the one before, whatever is still unanswered."""

    def __init__(self, workshop: Workshop, send: Send) -> None:
        self._workshop = workshop
        self._send = send
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def change(self, slot: str, number: int, changes: Changes) -> None:
        """Answer a change of the design ``slot``; ``number`` comes back with each answer."""
        self.drop(slot)
        self._tasks[slot] = asyncio.create_task(self._answer(slot, number, changes))

    def drop(self, slot: str) -> None:
        """Give up the design ``slot``."""
        task = self._tasks.pop(slot, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Give up all designs."""
        for slot in list(self._tasks):
            self.drop(slot)

    async def _answer(self, slot: str, number: int, changes: Changes) -> None:
        def send(kind: str, **values: object) -> None:
            self._send({"slot": slot, "number": number, "kind": kind, **values})

        try:
            await self._stages(changes, send)
        except InputError as error:
            send("refused", message=str(error))
            await self._options(changes, send)
        except LaneError as error:
            send("refused", message=f"this is a bug in Windtunnel: {error}")

    async def _stages(self, changes: Changes, send: Callable[..., None]) -> None:
        shop = self._workshop
        first = await shop.see(shop.quick, Look(changes, compiled=frozenset(shop.compiled)))
        send("seen", seen=first.to_dict(), stage="first")
        if first.key not in shop.compiled | shop.interpreted:
            send("stage", stage="compiling")
            compiled = shop.make_ready(first.key, changes)
            await self._curve(changes, first, None, send)
            await compiled
            first = await shop.see(shop.quick, Look(changes, compiled=frozenset(shop.compiled)))
            send("seen", seen=first.to_dict(), stage="first")
        await self._curve(changes, first, None, send)
        await asyncio.sleep(_QUIET_S)
        options = asyncio.create_task(self._options(changes, send))  # by the worker that has nothing else to do
        try:
            await self._thorough(changes, first, send)
            await options
        finally:
            options.cancel()
        send("stage", stage="done")

    async def _thorough(self, changes: Changes, first: Seen, send: Callable[..., None]) -> None:
        """Send the figures of the whole scenario, then with intervals, and finer curves."""
        shop = self._workshop
        send("stage", stage="whole")
        whole = await shop.see(shop.thorough, Look(changes, whole=True))
        send("seen", seen=whole.to_dict(), stage="whole")
        send("stage", stage="intervals")
        sure = await shop.see(shop.thorough, Look(changes, whole=True, intervals=True))
        send("seen", seen=sure.to_dict(), stage="intervals")
        send("stage", stage="curves")
        await self._curve(changes, first, FINER, send)

    async def _curve(self, changes: Changes, seen: Seen, jobs: int | None, send: Callable[..., None]) -> None:
        """Send the figures at loads around the present one, and the knees of the curves of times.

        All points are of the same number of jobs, ``jobs`` or that of first looks.
        """
        shop = self._workshop
        lane = shop.quick if jobs is None else shop.thorough
        here = _load(changes)
        curve: list[tuple[float, dict[str, float]]] = []
        for load in sorted({here, *points(here)}, key=lambda load: (load != here, load)):
            look = Look(changes, load=load, jobs=jobs, compiled=frozenset(shop.compiled))
            try:
                at = await shop.see(lane, look)
            except InputError:
                continue  # such as batches of less than one job
            curve.append((load, at.values()))
            send("point", load=load, values=at.values(), rate=at.rate_per_s, fine=jobs is not None)
        times = {figure.name for figure in seen.figures if figure.section == "Times"}
        curve.sort(key=lambda point: point[0])
        loads = [load for load, _ in curve]
        knees = {name: knee(loads, [values.get(name) for _, values in curve]) for name in sorted(times)}
        send("knees", knees=knees, loads=loads, jobs=jobs or seen.jobs)

    async def _options(self, changes: Changes, send: Callable[..., None]) -> None:
        """Send for each control which of its values do not fit the others, and why; those with few values first."""
        for control in sorted(self._workshop.controls, key=lambda control: len(control.options)):
            if control.checked:
                refused = await self._workshop.refusals(changes, control)
                send("options", control=control.name, refused=refused)


def _load(changes: Changes) -> float:
    value = str(changes.get("load", 1.0))
    return float(value.rstrip("% ")) / 100.0 if "%" in value else float(value)
