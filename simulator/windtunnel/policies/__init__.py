"""Every policy, by name. A new one is one decorated function in `routes` or `orders`."""

from __future__ import annotations

from windtunnel.core.policy import ORDERS, POLICIES, ROUTES, Batch, Policy
from windtunnel.policies import matrix, orders, routes

__all__ = ["matrix", "named", "orders", "parts", "route_names", "routes"]


def named(name: str, batch: Batch = Batch()) -> Policy:  # noqa: B008  Batch is immutable
    """The policy called ``name``; InputError with the nearest right name otherwise."""
    route_name, order_name = POLICIES.find(name)
    return Policy(name, ROUTES[route_name], ORDERS[order_name], batch)


def parts(route: str, order: str, batch: Batch = Batch()) -> Policy:  # noqa: B008  Batch is immutable
    """A policy put together from the names of its parts."""
    return Policy(f"{route} / {order}", ROUTES.find(route), ORDERS.find(order), batch)


def route_names() -> list[str]:
    """Every route's name."""
    return list(ROUTES)
