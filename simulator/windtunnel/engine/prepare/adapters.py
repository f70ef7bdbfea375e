"""The LoRA adapters of the jobs: which one each request uses, and what that means for the blocks of its prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.core.adapters import Adapters
from windtunnel.core.errors import InputError
from windtunnel.core.rng import stream
from windtunnel.engine.prepare.lengths import request_lengths
from windtunnel.engine.prepare.prefixes import PromptChains
from windtunnel.engine.prepare.source import Source
from windtunnel.scenario.program import ColumnRef, Generate


def adapters_of(stage: Generate, source: Source, adapters: Adapters | None) -> np.ndarray | None:
    """Return the number of the adapter of each job, 0 for none; shape (jobs,). None if the model has no adapters.

    A request that names no adapter gets one by their popularity. Its random number belongs to the job.

    Raises:
        InputError: if a job names an adapter that the model does not have.
    """
    where = source.where((*stage.path, "adapter"))
    if adapters is None:
        if stage.adapter is not None:
            raise InputError(
                f"the model '{stage.model}' has no adapters",
                where=where,
                expected=f"no adapter, or models.{stage.model}.adapters",
            )
        return None
    if stage.adapter is None:
        drawn = adapters.drawn(stream(source.seed, source.name, "adapter").random(source.count))
        sessions = request_lengths(stage, source).sessions
        # All turns of a session have the adapter of the first one.
        return drawn if sessions is None else drawn[sessions.first[sessions.of_job]]
    expected = f"a whole number from 0 (no adapter) to {adapters.count:,}"
    if not isinstance(stage.adapter, ColumnRef):
        if stage.adapter > adapters.count:
            raise InputError(f"adapter {stage.adapter:,.0f} of {adapters.count:,}", where=where, expected=expected)
        return np.full(source.count, int(stage.adapter), dtype=np.int64)
    words = source.words(stage.adapter.name, (*stage.path, "adapter"))
    for job, word in enumerate(words):
        if not word.isdecimal() or int(word) > adapters.count:
            place = where if source.trace is None else source.trace.place(job, stage.adapter.name)
            raise InputError(f"'{word[:40]}' is not the number of an adapter", where=place, expected=expected)
    return np.array([int(word) for word in words], dtype=np.int64)


def apart(chains: PromptChains, adapters: np.ndarray | None) -> PromptChains:
    """Return chains in which prompts for different adapters share no block, because their keys and values differ."""
    if adapters is None or not len(chains.runs):
        return chains
    owners = np.repeat(adapters, np.diff(chains.at))
    pairs = owners * len(chains.blocks) + chains.runs
    answers, with_answer = chains.answers, np.zeros(0, dtype=np.int64)
    if answers is not None:
        with_answer = np.flatnonzero(answers >= 0)
        pairs = np.append(pairs, adapters[with_answer] * len(chains.blocks) + answers[with_answer])
    known, found = np.unique(pairs, return_inverse=True)
    runs = found[: len(chains.runs)]
    if answers is not None:
        answers = answers.copy()
        answers[with_answer] = found[len(chains.runs) :]
    original = known % len(chains.blocks)
    return replace(chains, runs=runs, blocks=chains.blocks[original], tokens=chains.tokens[original], answers=answers)
