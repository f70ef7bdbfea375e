"""Every policy, by name. A new one is one decorated function in `routes` or `orders`."""

from __future__ import annotations

from pathlib import Path

from windtunnel.core.policy import ORDERS, POLICIES, ROUTES, Batch, Policy
from windtunnel.policies import orders, routes
from windtunnel.policies.own import is_own, own_order, own_route

__all__ = ["named", "orders", "parts", "route_names", "routes"]


def named(name: str, batch: Batch = Batch(), folder: Path = Path()) -> Policy:  # noqa: B008  immutable
    """The policy called ``name``, or the route ``./mine.py:choose`` in a file relative to ``folder``.

    InputError with the nearest right name otherwise.
    """
    if is_own(name):
        return Policy(name, own_route(name, folder), ORDERS["arrival"], batch)
    route_name, order_name = POLICIES.find(name)
    return Policy(name, ROUTES[route_name], ORDERS[order_name], batch)


def parts(route: str, order: str, batch: Batch = Batch(), folder: Path = Path()) -> Policy:  # noqa: B008  immutable
    """A policy put together from the names of its parts; files that they name are relative to ``folder``."""
    chosen = own_route(route, folder) if is_own(route) else ROUTES.find(route)
    ordered = own_order(order, folder) if is_own(order) else ORDERS.find(order)
    return Policy(f"{route} / {order}", chosen, ordered, batch)


def route_names() -> list[str]:
    """Every route's name."""
    return list(ROUTES)
