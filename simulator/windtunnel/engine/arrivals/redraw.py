"""Redraws the arrivals of a trace: other jobs with the same changes of the rate.

A trace is one sequence of jobs, and chance is what differs between it and another sequence with the same waves of its
rate. Blocks of the trace that are short against its waves are replaced by blocks from nearby, with the gaps and the
columns of their jobs: the local block bootstrap. Waves longer than the window stay, and what is shorter is chance.

Source: Paparoditis and Politis, "Local block bootstrap", Comptes Rendus Mathematique 335 (2002); for point processes
Braun and Kulperger, "Bootstrap for point processes", Journal of Statistical Computation and Simulation 60 (1998).
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.ticks import TickArray

MIN_JOBS = 200
"""Fewer jobs do not show the waves of their rate, and are not redrawn."""
_BESIDE = 15
"""The smallest window has this many times of arrival on either side of a typical one: a rate is not known from fewer.
Jobs that arrive together say no more of it than one."""
_MAX_SHARE = 8
"""The largest window is the trace over this number on either side."""
_GAP = 4
"""Jobs closer than the smallest window over this number do not count when a job is predicted."""
_BLOCKS = 8
"""The number of blocks in half a window."""


def window(ticks: TickArray) -> int:
    """Return half the length of the window within which the arrivals ``ticks`` are redrawn (ticks).

    The window is the one in which the number of other jobs predicts each job best: the mean logarithm of the rate that
    they give is largest (cross-validation of the likelihood). Jobs that are very near do not count, so that neither
    batches nor regular distances look like waves. Candidates double from the window with 15 different times on either
    side of the median one to an eighth of the trace. Fewer than 200 jobs have no window (0), and neither have jobs that
    all arrive at the same time.

    Source: for the criterion, Silverman, Density Estimation (1986), section 3.4.4; leaving out neighbours, Chu and
    Marron, Annals of Statistics 19 (1991).
    """
    span = int(ticks[-1]) if len(ticks) else 0
    longest = span // _MAX_SHARE
    if not longest or len(ticks) < MIN_JOBS:
        return 0
    times = np.unique(ticks)
    apart = times[2 * _BESIDE :] - times[: -2 * _BESIDE]
    shortest = max(int(np.median(apart)) // 2, 1) if len(apart) else longest
    candidates = [longest]
    while shortest < longest:
        candidates.insert(-1, shortest)
        shortest *= 2
    left_out = candidates[0] // _GAP
    near, near_s = _around(ticks, left_out, span)
    scores = []
    for half in candidates:
        jobs, length = _around(ticks, half, span)
        rate = np.maximum(jobs - near, 0.5) / np.maximum(length - near_s, 1)
        scores.append(float(np.log(rate).sum()))
    return candidates[int(np.argmax(scores))]


def _around(ticks: TickArray, half: int, span: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of jobs within ``half`` of each job, and the part of that time that is in the trace (ticks).

    The end of that time does not count, so that jobs at regular distances have the same rate in every window.
    """
    first = np.searchsorted(ticks, ticks - half, side="left")
    last = np.searchsorted(ticks, ticks + half, side="left")
    return last - first, np.minimum(ticks + half, span) - np.maximum(ticks - half, 0)


def redrawn(ticks: TickArray, rng: np.random.Generator, half: int) -> tuple[TickArray, np.ndarray]:
    """Return redrawn arrivals in order of time, and the index of the job of ``ticks`` that each one is a copy of.

    Each block of the redrawn trace is a block of the trace that begins within ``half`` of it, reflected at both ends.
    The number of jobs differs from that of the trace by chance, and is at least 1.

    Args:
        ticks: The arrivals in order; shape (jobs,).
        rng: The random numbers.
        half: ``window(ticks)``.
    """
    if not half:
        return ticks, np.arange(len(ticks))
    length = max(half // _BLOCKS, 1)
    end = int(ticks[-1]) + 1
    begins = np.arange(0, end, length, dtype=np.int64)
    shifts = np.rint((2.0 * rng.random(len(begins)) - 1.0) * half).astype(np.int64)
    last = end - length
    sources = last - np.abs(last - np.abs(begins + shifts))
    first = np.searchsorted(ticks, sources)
    counts = np.searchsorted(ticks, sources + length) - first
    # The jobs of block b are first[b], first[b] + 1, ...
    chosen = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    moved = ticks[chosen] + np.repeat(begins - sources, counts)
    kept = moved < end
    if not kept.any():
        return ticks, np.arange(len(ticks))
    return moved[kept], chosen[kept]
