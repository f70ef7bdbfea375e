"""Hardware that is not for sale: a SKU with other values of some of its parameters.

Such a device has no measurements. It is modelled as any other device without measurements is, with the SKU that it was
changed from as its only relative, if that was measured, and else with the relatives of that SKU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from windtunnel.core.device import Kind
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.provenance import SourcedValue, assumed
from windtunnel.core.spec import NOT_FOR_SALE, Changes, DeviceSpec, Parameter, changed_name
from windtunnel.core.units import format_quantity, is_dimensionless, parse_quantity

_FACTOR = re.compile(r"\s*(-?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*x\s*")
_ENDINGS = ("_bytes_per_s", "_bytes_s", "_bytes", "_per_s", "_hz", "_w", "_s")
"""Units at the end of the names of parameters, which a user may leave out."""


def changed(spec: DeviceSpec, kind: Kind, values: Mapping[str, SourcedValue], changes: Changes) -> DeviceSpec:
    """Return a SKU with other values of some parameters; each is assumed, and is exactly what is stated.

    Args:
        spec: The SKU.
        kind: Its kind.
        values: All values of its device, which a factor such as ``1.5x`` multiplies.
        changes: A quantity or a factor by the parameter's name, which may lack its unit; for a table, by key.

    Raises:
        InputError: A parameter, a key or a value is wrong; its field is the parameter as it was written.
    """
    made: dict[str, SourcedValue] = {}
    for name, stated in changes.items():
        try:
            for path, value in _changed(spec, kind, values, name, stated).items():
                if path in made:
                    raise InputError(f"'{path}' is changed twice", expected="each parameter once")
                made[path] = value
        except InputError as error:
            raise error.at(Location(field=name)) from None
    name = changed_name(spec.sku, changes)
    return replace(spec, sku=name, name=name, base=spec.sku, values={**spec.values, **made})


def _changed(
    spec: DeviceSpec, kind: Kind, values: Mapping[str, SourcedValue], name: str, stated: object
) -> dict[str, SourcedValue]:
    """Return the values that one change gives, by the paths of parameters."""
    parameter = _parameter(kind, name)
    if not isinstance(stated, Mapping):
        paths = [path for path in values if path.partition(".")[0] == parameter.name]
        if parameter.keys and (_FACTOR.fullmatch(str(stated)) is None or not paths):
            raise InputError(
                f"'{name}' of {spec.sku} is a table",
                expected=f"one of its keys, such as {name}.{parameter.keys[0]}, or a factor such as 1.5x for all",
            )
        return {path: _value(spec, parameter, values, path, stated) for path in paths or [parameter.name]}
    if not parameter.keys:
        raise InputError(f"'{name}' of {spec.sku} is one number, without keys", expected=f"{name}: 1.5x")
    made = {}
    for key, inner in stated.items():
        if key not in parameter.keys:
            raise InputError(
                f"'{name}' has no '{key}'",
                expected=list_choices(parameter.keys, 20),
                nearest=nearest(str(key), parameter.keys),
            )
        path = f"{parameter.name}.{key}"
        made[path] = _value(spec, parameter, values, path, inner)
    return made


def _parameter(kind: Kind, name: str) -> Parameter:
    """Return the parameter with this name, which may lack its unit."""
    found = [p for p in kind.parameters if p.name == name] or [p for p in kind.parameters if name in _names(p)]
    if len(found) == 1:
        return found[0]
    known = [short for p in kind.parameters for short in (*_names(p), p.name)]
    if found:
        full = [p.name for p in found]
        raise InputError(f"'{name}' is not the name of one parameter", expected=list_choices(full))
    raise InputError(
        f"a {kind.name} has no '{name}'",
        expected=list_choices([next(iter(_names(p)), p.name) for p in kind.parameters], 12),
        nearest=nearest(name, known),
    )


def _names(parameter: Parameter) -> tuple[str, ...]:
    """Return the short names of a parameter: without its unit, and with ``bandwidth`` in place of bytes per second."""
    ending = next((e for e in _ENDINGS if parameter.name.endswith(e)), None)
    if ending is None:
        return ()
    short = parameter.name.removesuffix(ending)
    if ending not in ("_bytes_per_s", "_bytes_s"):
        return (short,)
    return (short,) if short.endswith("_bandwidth") else (f"{short}_bandwidth",)


def _value(
    spec: DeviceSpec, parameter: Parameter, values: Mapping[str, SourcedValue], path: str, stated: object
) -> SourcedValue:
    product = values.get(path)
    shown = "no value" if product is None else format_quantity(product.value, parameter.unit)
    factor = _FACTOR.fullmatch(str(stated))
    if factor is not None:
        if product is None:
            raise InputError(f"{spec.sku} has no value of '{path}' to multiply", expected=_example(parameter))
        value = product.value * float(factor[1])
    elif isinstance(stated, bool) or not isinstance(stated, (str, int, float)):
        raise InputError(f"this is {stated!r}", expected=f"{_example(parameter)}, or a factor such as 1.5x")
    else:
        try:
            value = parse_quantity(str(stated), parameter.unit)
        except InputError as error:
            raise InputError(
                error.problem, expected=f"{_example(parameter)}, or a factor such as 1.5x", nearest=error.nearest
            ) from None
    if value <= 0.0:
        raise InputError(f"'{stated}' is not above zero", expected="more than zero")
    return assumed(value, value, value, f"{NOT_FOR_SALE}: {stated}, where {spec.sku} has {shown}")


def _example(parameter: Parameter) -> str:
    return "a number" if is_dimensionless(parameter.unit) else f"a quantity such as '10 {parameter.unit}'"
