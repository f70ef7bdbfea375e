"""What `windtunnel check` makes up for a launch, and how it changes when a kernel shows that it does not fit.

Memory of which nothing is stated has an element for each thread. A kernel that needs more (``in[2 * i]``,
``a[row * width + k]``) is launched again with larger memory until its indices fit. An access just past the end
(``in[i + 1]``, or ``i <= n``) is no such need: it remains a finding, as does one before the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from windtunnel.app.check_arguments import MadeUp
from windtunnel.app.check_contents import Contents, Counter
from windtunnel.core.errors import DataRace, Deadlock, DivisionByZero, Finding, MisalignedAccess, OutOfBounds

_LARGEST = 1 << 22
"""Elements of the largest buffer that is made up."""
_SHARED_BYTES = (8192, 32768)
"""Bytes of dynamic shared memory of which nothing is stated; they leave room for shared memory of a stated size."""
_SMALL = 8
"""Integers, if the number of threads leads to larger memory than that."""
_UNSIGNED = 1 << 31
"""An index from here on is a negative number."""
_ALIGNED = 16
"""Of what integers are multiples where an address is not aligned."""
_WAITS, _ZERO = "threads wait for ever", "a division by zero follows"
_FAR, _UNALIGNED = "an index is beyond the largest memory", "an address is not aligned"
"""Why integers do not have the number of threads."""
_MOST_SHOWN = 4
"""Integers that a finding names."""
_GROWTH = 64
"""By what a buffer grows at least; ``__local`` memory doubles."""


@dataclass(frozen=True)
class Scope:
    """What of the arguments of a launch is made up.

    Attributes:
        elements: The elements of buffers and of ``__local`` memory whose size is not known, by name.
        local: Which of them are ``__local``, and the most elements that the device has room for.
        parameters: All parameters of the kernel.
        buffers: The buffers that are made up, and their elements.
        integers: The integers that are made up, and their values.
        numbers: Whether there is an integer.
        shared: Whether there is dynamic shared memory, if the kernel has any.
        plain: Whether an element just past the end is a finding, as in launches of one dimension.
        contents: What the buffers of integers are for.
        blocks: The number of blocks.
        kernel: The name of the kernel.
    """

    elements: Mapping[str, int] = field(default_factory=dict)
    local: Mapping[str, int] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    buffers: Mapping[str, int] = field(default_factory=dict)
    integers: Mapping[str, int] = field(default_factory=dict)
    numbers: bool = False
    shared: bool = False
    plain: bool = True
    contents: Contents = field(default_factory=Contents)
    blocks: int = 1
    kernel: str = ""

    # Long: one case for each class of a finding.
    def after(self, made: MadeUp, finding: Finding) -> MadeUp | None:
        """Return what is made up after a finding; None if the finding does not come from what is made up."""
        if isinstance(finding, DivisionByZero):
            if self.buffers and not made.positive:
                return replace(made, positive=True)
            return replace(made, integer=1, reason=_ZERO) if self.numbers and made.integer == _SMALL else None
        if isinstance(finding, Deadlock):
            return self._without_waiting(made, finding.array)
        if isinstance(finding, DataRace):
            return self._with_distinct(made, finding)
        if isinstance(finding, MisalignedAccess):
            return self._with_multiples(made)
        if not isinstance(finding, OutOfBounds) or finding.array is None or len(finding.shape) != 1:
            return None
        have, beyond = self.elements.get(finding.array), _beyond(finding)
        if have is None:
            is_shared = self.shared and finding.array not in self.parameters
            return _more_shared_memory(made, finding.shape[0]) if is_shared else None
        if have == 0 or beyond is None:
            return None
        size = needed = _elements(finding.shape[0] + beyond, finding.shape[0], have)
        if not self.is_just_past(made, finding):
            power = 1 << (needed - 1).bit_length()
            size = min(power if finding.array in self.local else max(_GROWTH * have, power), _LARGEST)
        if finding.array in self.local:
            size = min(size, self.local[finding.array])
            if size < needed:
                return None
        if needed <= _LARGEST:
            accessed = {**made.accessed, finding.array: needed - 1}
            return replace(made, counts={**made.counts, finding.array: size}, accessed=accessed)
        # A product of sizes, perhaps: the finding counts if it remains with small ones.
        small = self.numbers and made.integer is None and needed < _UNSIGNED
        known = {name: count for name, count in made.counts.items() if name not in self.elements}
        return replace(made, counts=known, integer=_SMALL, reason=_FAR) if small else None

    def _without_waiting(self, made: MadeUp, waited: str | None) -> MadeUp | None:
        """Return what is made up after a wait for ever: for a lock or a flag that is not free, or never set."""
        if waited is not None and waited not in self.buffers:
            return None
        names = self.buffers if waited is None else [waited]
        counters = self.contents.counters
        filled = {**{name: counters[name].start if name in counters else 0 for name in names}, **made.filled}
        if filled != made.filled:
            return replace(made, filled=filled)
        is_open = any(counters.get(name, Counter(0)).is_open for name in names)
        if not is_open or not self.numbers or made.integer is not None:
            return None
        return replace(made, integer=self.blocks, reason=_WAITS)

    def _with_distinct(self, made: MadeUp, finding: DataRace) -> MadeUp | None:
        """Return what is made up after a race of stores whose places are stated by buffers that are made up."""
        array = finding.array or ""
        places = [self.contents.places.get((array, line), frozenset()) & self.buffers.keys() for line in finding.lines]
        names = frozenset().union(*places)
        if not places or not all(places):
            return None
        for step in (1, max(self.buffers.values())):
            fits = {name for name in names if self.buffers[name] * step <= _LARGEST}
            if any(made.spaced.get(name, 0) < step for name in fits):
                return replace(made, spaced={**made.spaced, **dict.fromkeys(fits, step)})
        return None

    def _with_multiples(self, made: MadeUp) -> MadeUp | None:
        """Return what is made up with integers that are multiples of 16, for rows that are read as vectors."""
        integer = max((n for name, n in self.integers.items() if name not in made.numbers), default=0)
        numbers = {name: number - number % _ALIGNED or number for name, number in made.numbers.items()}
        changed = replace(made, numbers=numbers)
        if integer % _ALIGNED and made.integer is None:
            changed = replace(changed, integer=integer - integer % _ALIGNED or _ALIGNED, reason=_UNALIGNED)
        return changed if changed != made else None

    def is_just_past(self, made: MadeUp, finding: Finding) -> bool:
        """Return whether a finding is an access of the element after the last one, of memory that has not grown."""
        have = self.elements.get(finding.array or "")
        if not self.plain or not isinstance(finding, OutOfBounds) or have is None or finding.array in made.counts:
            return False
        at = [(finding.array, line) for line in finding.lines]
        if at and self.contents.indirect.issuperset(at):
            return False  # where buffers say that are made up
        beyond = _beyond(finding)
        return beyond is not None and _elements(finding.shape[0] + beyond, finding.shape[0], have) == have + 1

    def spec(self, name: str) -> str:
        """Return the option that states the size of memory."""
        return f"--arg {name}={'local' if name in self.local else 'random'}:N"

    def without_division_by_zero(self, made: MadeUp, divides: Callable[[MadeUp], bool]) -> MadeUp | None:
        """Return what is made up with other integers, if a division by zero comes from their value alone.

        It is the kernel's own if it is there for the number below that of the elements and for 1, or only for even
        numbers (``n - 2 * i``): for the next number and for 2.
        """
        number = max(self.integers.values(), default=0)
        if not self.numbers or made.integer is not None or number < _SMALL:
            return replace(made, integer=1, reason=_ZERO) if self.numbers and made.integer is None else None
        tried = [replace(made, integer=other, reason=_ZERO) for other in (number - 1, number - 2, 1, 2)]
        zero = [divides(one) for one in tried]
        below, even, one, two = zero
        if (below and one) or (not below and even and two):
            return None
        return next(other for other, by_zero in zip(tried, zero, strict=True) if not by_zero)

    def described(self, finding: Finding) -> str:
        """Return the values that are made up and on which a finding may depend, in words; nothing if there are none."""
        shown = [f"{name} = {value:,}" for name, value in list(self.integers.items())[:_MOST_SHOWN]]
        array = finding.array or ""
        is_told = isinstance(finding, OutOfBounds) and array in self.elements  # with the option that states its size
        if array in self.buffers and not is_told and isinstance(finding, (Deadlock, OutOfBounds)):
            shown.append(f"'{array}' ({self.buffers[array]:,} elements)")
        if not shown:
            return ""
        text = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
        return f"{text} {'is' if len(shown) == 1 else 'are'} not given and made up"

    def notes(self, made: MadeUp, found: str | None, finding: Finding | None) -> list[str]:
        """Return what to say of what has changed, except of memory that a finding names, and of what was in vain."""
        grown = [
            f"the bounds of '{name}' are not checked: its size is not given, and the kernel accesses more than an "
            f"element for each thread (element {made.accessed.get(name, count - 1):,}), so {count:,} are made up; "
            f"{self.spec(name)} states the size"
            for name, count in made.counts.items() if name != found and name in self.elements
        ]  # fmt: skip
        for name, number in sorted(made.filled.items()):
            is_place = self.contents.counters.get(name, Counter(0)).is_place
            if is_place or not isinstance(finding, Deadlock):
                why = "a compare-and-swap expects it" if is_place else "threads wait for ever with other values"
                grown.append(f"'{name}' is not given, and is made up {_as(number)}, because {why}")
        if not isinstance(finding, DataRace):
            grown += [f"'{name}' is not given, and is made up with distinct numbers, because the kernel stores where "
                      "they say, and threads race with equal ones" for name in sorted(made.spaced)]  # fmt: skip
        if made.integer is not None and not (made.reason == _WAITS and isinstance(finding, Deadlock)):
            grown.append(
                f"integers that are not given are {made.integer}, because {made.reason} with the number of threads"
            )
        if made.shared_bytes:
            grown.append(
                f"the dynamic shared memory is not given, and {made.shared_bytes:,} bytes are made up: --shared-bytes "
                "states them"
            )
        return grown


def _as(number: int) -> str:
    return "as zeros" if number == 0 else f"with {number:,} everywhere"


def _more_shared_memory(made: MadeUp, length: int) -> MadeUp | None:
    if length != 0 and (made.shared_bytes % length or made.shared_bytes // length not in (1, 2, 4, 8)):
        return None  # of a stated size
    more = next((size for size in _SHARED_BYTES if size > made.shared_bytes), None)
    return None if more is None else replace(made, shared_bytes=more)


def _beyond(finding: OutOfBounds) -> int | None:
    """Return by how many numbers an array is too short for an index; None for one before its beginning."""
    if not isinstance(finding.index, int) or finding.index < 0 or len(finding.shape) != 1 or finding.shape[0] < 1:
        return None
    return finding.index - finding.shape[0] + 1


def _elements(numbers: int, length: int, have: int) -> int:
    """Return how many elements some numbers are, if ``have`` elements are ``length`` numbers."""
    return -(-numbers * have // length)
