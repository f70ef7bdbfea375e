"""The policies by name. A new policy is a decorated function in `routes` or `orders`."""

from __future__ import annotations

from pathlib import Path

from windtunnel.core.policy import ORDERS, POLICIES, ROUTES, Batch, Order, Policy, Route
from windtunnel.policies import orders, routes
from windtunnel.policies.own import is_own, own_order, own_route

__all__ = ["named", "order_named", "orders", "route_named", "route_names", "routes"]


def named(name: str, batch: Batch = Batch(), folder: Path = Path(), outside: bool = False) -> Policy:  # noqa: B008  immutable
    """Return the policy called ``name``, or the route ``./mine.py:choose`` in a file relative to ``folder``.

    ``outside``: the file may be outside of ``folder``.

    Raises:
        InputError: There is no such policy; it names the nearest one.
    """
    if is_own(name):
        return Policy(name, route_named(name, folder, outside), ORDERS["arrival"], batch)
    route_name, order_name = POLICIES.find(name)
    return Policy(name, ROUTES[route_name], ORDERS[order_name], batch)


def route_named(name: str, folder: Path = Path(), outside: bool = False) -> Route:
    """Return the route called ``name``, or the one in a file relative to ``folder``.

    Raises:
        InputError: There is no such route, or the file is wrong.
    """
    return own_route(name, folder, outside) if is_own(name) else ROUTES.find(name)


def order_named(name: str, folder: Path = Path(), outside: bool = False) -> Order:
    """Return the order called ``name``, or the one in a file relative to ``folder``.

    Raises:
        InputError: There is no such order, or the file is wrong.
    """
    return own_order(name, folder, outside) if is_own(name) else ORDERS.find(name)


def route_names() -> list[str]:
    """Return the name of every route."""
    return list(ROUTES)
