"""The lengths of the requests of a workload: prompts and outputs, the prefixes that prompts share, and sessions.

Every random number belongs to a job, a session or a prefix by its index within the workload, so none depends on the
order of events in a run, and a longer run only adds numbers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.rng import stream
from windtunnel.engine.arrivals import TraceRows, row_draws, think_ticks
from windtunnel.engine.prepare.source import RequestLengths, Sessions, Source, drawn_lengths
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.lengths import Length, Session, SharedPrefix
from windtunnel.scenario.program import ColumnRef, Generate, TokenCount
from windtunnel.scenario.scenario import Scenario


def request_lengths(stage: Generate, source: Source) -> RequestLengths:
    """Return the lengths of all requests of a workload; those of sessions were drawn with its arrivals.

    Raises:
        InputError: if a length is not valid, or a prompt is shorter than the prefix that is a part of it.
    """
    found = source.requests.get(stage.path)
    if found is None:
        groups, prefixes = _prefixes(stage.shared_prefix, source, source.count, stage)
        prompts = _longer(_values(source, stage.prompt, (*stage.path, "prompt")), stage.prompt_factor)
        prompts = _with_prefix(prompts, stage, source, groups, prefixes)
        outputs = _longer(_values(source, stage.output, (*stage.path, "output")), stage.output_factor)
        found = source.requests[stage.path] = RequestLengths(prompts, outputs, groups, prefixes)
    return found


def _values(source: Source, value: TokenCount, path: tuple[str | int, ...]) -> np.ndarray:
    """Return a value of every job of a source; shape (jobs,)."""
    return np.broadcast_to(source.value(value, path), (source.count,)).astype(np.int64)


def _longer(tokens: np.ndarray, factor: float) -> np.ndarray:
    """Return numbers of tokens times a factor, at least 1 each."""
    return tokens if factor == 1.0 else np.maximum(np.rint(tokens * factor), 1).astype(np.int64)


def _prefixes(
    shared: SharedPrefix | None, source: Source, count: int, stage: Generate
) -> tuple[np.ndarray, np.ndarray]:
    """Return the prefix of each of ``count`` jobs or sessions, and the tokens of each prefix."""
    if shared is None:
        return np.zeros(count, dtype=np.int64), np.zeros(1, dtype=np.int64)
    if isinstance(shared.tokens, Length):
        where = source.where((*stage.path, "shared_prefix", "tokens"))
        rng = stream(source.seed, source.name, "prefix", "tokens")
        tokens = drawn_lengths(shared.tokens, rng, shared.groups, source.folder, where).astype(np.int64)
    else:
        tokens = np.full(shared.groups, shared.tokens, dtype=np.int64)
    tokens = _longer(tokens, stage.prompt_factor)
    if shared.groups == 1:
        return np.zeros(count, dtype=np.int64), tokens
    weights = 1.0 / np.arange(1.0, shared.groups + 1.0) ** shared.zipf
    shares = np.cumsum(weights) / weights.sum()
    chosen = np.searchsorted(shares, stream(source.seed, source.name, "prefix", "group").random(count), side="right")
    return np.minimum(chosen, shared.groups - 1).astype(np.int64), tokens


def _with_prefix(
    prompts: np.ndarray, stage: Generate, source: Source, groups: np.ndarray, prefixes: np.ndarray
) -> np.ndarray:
    """Return prompts with the shared prefixes before them, or as they are if these are a part of them."""
    shared = stage.shared_prefix
    if shared is None:
        return prompts
    if shared.beside_prompt:
        return np.asarray(prompts + prefixes[groups])
    short = np.flatnonzero(prompts < prefixes[groups])
    if len(short):
        job = int(short[0])
        raise InputError(
            f"a prompt has {prompts[job]:,} tokens, and the prefix that all share {prefixes[groups[job]]:,}",
            where=source.where((*stage.path, "shared_prefix")),
            expected="at most the shortest prompt, which includes the prefix, or {tokens: ..., beside_prompt: true}",
        )
    return prompts


# Sessions.


def session_turns(session: Session, source: Source, count: int, path: tuple[str | int, ...]) -> np.ndarray:
    """Return the number of requests of ``count`` sessions, of which ``source`` has the seed and name; (count,)."""
    if isinstance(session.turns, int):
        return np.full(count, session.turns, dtype=np.int64)
    rng = stream(source.seed, source.name, "session", "turns")
    return drawn_lengths(session.turns, rng, count, source.folder, source.where((*path, "turns"))).astype(np.int64)


def mean_turns(session: Session) -> float:
    """Return about how many requests a session has."""
    return float(session.turns) if isinstance(session.turns, int) else session.turns.typical


def session_lengths(
    session: Session,
    stage: Generate,
    source: Source,
    turns: np.ndarray,
    supported: int | None,
    path: tuple[str | int, ...],
) -> tuple[RequestLengths, np.ndarray]:
    """Return the lengths of the requests of sessions, and which of the requests of ``source`` they are.

    Args:
        session: The session at ``path`` of the scenario.
        stage: The program of each request.
        source: A source with as many jobs as the sessions have turns, one session after the other.
        turns: The number of turns of each session.
        supported: The longest context of the model, if that is known.
        path: The path of the session.
    """
    first = np.concatenate([[0], np.cumsum(turns)])
    of = np.repeat(np.arange(len(turns)), turns)
    is_first = np.zeros(source.count, dtype=bool)
    is_first[first[:-1]] = True
    groups, prefixes = _prefixes(stage.shared_prefix, source, len(turns), stage)
    added = _longer(_values(source, _value(session.new_tokens), (*path, "new_tokens")), stage.prompt_factor)
    prompts = _longer(_values(source, stage.prompt, (*stage.path, "prompt"))[is_first], stage.prompt_factor)
    added[is_first] = _with_prefix(prompts, stage, source, groups, prefixes)
    outputs = _longer(_values(source, stage.output, (*stage.path, "output")), stage.output_factor)
    ends = np.cumsum(added + outputs)
    contexts = ends - (ends - added - outputs)[first[:-1]][of]
    longest = session.max_context or supported
    kept = is_first if longest is None else is_first | (contexts <= longest)
    if longest is None:
        kept = np.ones(source.count, dtype=bool)
    ticks = think_ticks(session.think, stream(source.seed, source.name, "session", "think"), source.count)
    ticks[is_first] = 0
    sessions = Sessions(np.concatenate([[0], np.cumsum(np.bincount(of[kept], minlength=len(turns)))]), ticks[kept])
    lengths = RequestLengths((contexts - outputs)[kept], outputs[kept], groups[of[kept]], prefixes, sessions)
    return lengths, np.flatnonzero(kept)


def session_source(scenario: Scenario, number: int, arrivals: Source) -> Source:
    """Return the source of the requests of the sessions of a workload.

    Args:
        scenario: The scenario.
        number: The number of the workload.
        arrivals: Its source with a job for each session that arrives, or for each request of users to draw for.

    Raises:
        InputError: if the program is not a single ``generate``, or a length is not valid.
    """
    workload, program = scenario.workload[number], scenario.programs[number]
    session, path = workload.session, ("workload", number, "session")
    assert session is not None  # noqa: S101  the caller looked
    stage = program[0]
    if len(program) != 1 or not isinstance(stage, Generate):
        raise InputError(
            f"the requests of the sessions of '{workload.name}' are not a single generate",
            where=scenario.where(*path),
            expected="ops: [{generate: {...}}]",
        )
    sessions = arrivals.count
    if isinstance(workload.arrivals, Closed):
        sessions = workload.arrivals.users + arrivals.count // max(1, int(mean_turns(session)))
    turns = session_turns(session, arrivals, sessions, path)
    whole = replace(arrivals, ticks=np.zeros(int(turns.sum()), dtype=np.int64))
    if workload.rows is not None:
        whole.trace = drawn_rows(scenario, number, whole)
    supported = scenario.served_models[stage.model].architecture.max_context
    lengths, kept = session_lengths(session, stage, whole, turns, supported, path)
    return replace(
        arrivals,
        ticks=np.zeros(len(kept), dtype=np.int64),
        trace=None if whole.trace is None else whole.trace.chosen(kept),
        requests={stage.path: lengths},
        begins=arrivals.ticks,
    )


def drawn_rows(scenario: Scenario, number: int, source: Source) -> TraceRows:
    """Return the rows of a table that the jobs of a workload take at random."""
    rows = scenario.workload[number].rows
    assert rows is not None  # noqa: S101  the caller looked
    rng = stream(source.seed, source.name, "rows")
    where = partial(scenario.where, "workload", number, "rows")
    return row_draws(rows, scenario.folder, rng, source.count, where)


def _value(tokens: int | str | Length) -> TokenCount:
    if isinstance(tokens, str):
        return ColumnRef(tokens[1:])
    return tokens if isinstance(tokens, Length) else float(tokens)
