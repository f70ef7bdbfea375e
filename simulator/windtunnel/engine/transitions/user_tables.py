"""The tables of users: of closed loops, and of sessions that arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from windtunnel.engine.prepare.jobs import draw_columns
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.source import ServiceTimeDraws
from windtunnel.engine.prepare.users import UserClass
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.heap import ROOT, heap_push
from windtunnel.engine.transitions.tables import Records, records
from windtunnel.engine.transitions.users import OF_WORKLOAD


def user_rows(prepared: PreparedRun, workloads: Records) -> Records:
    """Return the users of all closed workloads, who have not thought yet."""
    rows = records(sum(users.users for users in prepared.users), tables.USER)
    first = 0
    for users in _closed_first(prepared):
        mine = slice(first, first + users.users)
        rows.work[mine] = users.work
        if users.think is None and users.sessions is not None:
            rows.rank[mine], rows.left[mine] = users.sessions.first[:-1], np.diff(users.sessions.first)
        workloads[users.work].first_user = first
        first += users.users
    return rows


def _closed_first(prepared: PreparedRun) -> list[UserClass]:
    """Return the users who come again before those of sessions that arrive, because only the former have think times
    of their own.
    """
    return sorted(prepared.users, key=lambda users: users.think is None)


def submissions(prepared: PreparedRun, r: Records) -> Records:
    """Return the heap of the first submissions of the users."""
    heap = records(ROOT + sum(users.users for users in prepared.users) + 2, tables.ENTRY)
    for users in prepared.users:
        for user, tick in enumerate(users.begins.tolist()):
            if tick < r.end:
                r.submits = heap_push(heap, int(r.submits), tick, users.work * OF_WORKLOAD + user)
    return heap


def think_ticks(prepared: PreparedRun, rounds: int) -> np.ndarray:
    """Return the first ``rounds`` think times of all users; shape (rounds, users)."""
    of_users = [users.think.rounds(rounds) for users in prepared.users if users.think is not None]
    return np.concatenate([np.zeros((rounds, 0), dtype=np.int64), *of_users], 1)


def write_draws(
    prepared: PreparedRun,
    rows: Records,
    columns: Mapping[int, list[ServiceTimeDraws]],
    add_ints: Callable[[np.ndarray], int],
    add_numbers: Callable[[np.ndarray], int],
) -> None:
    """Write the random numbers of the jobs of users, which are not known in advance, into their workloads.

    ``add_ints`` and ``add_numbers`` store an array, and return its offset.
    """
    for users in prepared.users:
        row = rows[users.work]
        row.capacity, row.signatures, row.sessions = users.requested, add_ints(users.signatures), -1
        row.comes_again = users.think is not None
        if users.sessions is not None:
            row.sessions, row.session_count = add_ints(users.sessions.first), users.sessions.count
            row.thinks = add_ints(users.sessions.think)
        drawn = np.ones((users.capacity, draw_columns(prepared)))
        for column, variates in enumerate(columns.get(users.work, [])):
            drawn[:, column] = variates.values[: users.capacity]
        row.draws_at = add_numbers(drawn.ravel())
        if users.slowdown is not None:
            row.stretch_at = add_numbers(users.slowdown)
