"""The blocks of the prompts of all jobs, for prefix caches.

A prompt of n tokens has n / block blocks, rounded up. Each stands for all tokens up to its end, so prompts share blocks
from the first one on. Blocks that occur only together are one run: the blocks of a shared prefix are one, and so are
those that only one job has. The prompts of a session also hold the blocks of the answers before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.engine.arrivals.hash_ids import BlockRuns
from windtunnel.engine.prepare.lengths import request_lengths
from windtunnel.engine.prepare.source import RequestLengths, Sessions, Source
from windtunnel.scenario.arrivals import Trace
from windtunnel.scenario.policy import ContinuousBatch
from windtunnel.scenario.program import Generate, Stage
from windtunnel.scenario.scenario import Scenario, Workload
from windtunnel.scenario.trace_formats import FORMATS

_BLOCK_TOKENS = 16
"""The default of vLLM's `--block-size` on GPUs."""


@dataclass(frozen=True)
class PromptChains:
    """The prompts of the jobs of a workload as chains of runs of blocks.

    Attributes:
        at: Where the chain of each job begins in ``runs``; shape (jobs + 1,).
        runs: The runs of all jobs, from the first block of a prompt on.
        blocks: The number of blocks of each run; shape (runs,).
        tokens: The number of tokens of each run.
        home: A number for each job that the jobs of one conversation share.
        job_tokens: The tokens of the prompt of each job; shape (jobs,).
        answers: The run of the full blocks that each job generates, -1 if there is none; shape (jobs,). None if no
            prompt holds them.
    """

    at: np.ndarray
    runs: np.ndarray
    blocks: np.ndarray
    tokens: np.ndarray
    home: np.ndarray
    job_tokens: np.ndarray
    answers: np.ndarray | None = None

    @cached_property
    def job_blocks(self) -> np.ndarray:
        """The number of blocks of the prompt of each job; shape (jobs,)."""
        sums = np.concatenate([[0], np.cumsum(self.blocks[self.runs])])
        counts: np.ndarray = sums[self.at[1:]] - sums[self.at[:-1]]
        return counts

    @cached_property
    def first_read(self) -> np.ndarray:
        """The tokens of each prompt from the first run of blocks on that no earlier job has; shape (jobs,)."""
        count = len(self.job_tokens)
        job = np.repeat(np.arange(count), np.diff(self.at))
        _, first, inverse = np.unique(self.runs, return_index=True, return_inverse=True)
        known = job[first][inverse] < job
        if self.answers is not None:
            return np.zeros(count)  # a prompt may hold what an earlier job has generated
        # The leading runs are those before the first one that is not known.
        unknown = np.concatenate([[0], np.cumsum(~known)])
        leading = unknown[1:] == unknown[self.at[:-1]][job] if len(job) else np.zeros(0, dtype=bool)
        hit = np.bincount(job, weights=np.where(leading, self.tokens[self.runs], 0), minlength=count)
        read: np.ndarray = self.job_tokens - hit
        return read


def block_tokens(scenario: Scenario) -> int:
    """Return the tokens of a block: those of the traces with hash ids, or what the scenario states.

    Raises:
        InputError: if the scenario states another number than a trace has.
    """
    policy = scenario.policy
    batch = None if isinstance(policy, str) else policy.batch
    stated = batch.prefix_cache.block if isinstance(batch, ContinuousBatch) and batch.prefix_cache else None
    for workload in scenario.workload:
        arrivals = workload.arrivals
        tokens = (
            FORMATS[arrivals.format].block_tokens if isinstance(arrivals, Trace) and arrivals.format in FORMATS else 0
        )
        if tokens and stated not in (None, tokens):
            raise InputError(
                f"blocks of {stated} tokens, and the hash ids of the trace of '{workload.name}' stand for {tokens}",
                where=scenario.where("policy", "batch", "prefix_cache", "block"),
                expected=f"{tokens}, or no `block`",
            )
        if tokens:
            return tokens
    return stated or _BLOCK_TOKENS


def what_prompts_share(workload: Workload, program: Sequence[Stage]) -> str:
    """Return in words what lets prompts of a workload begin alike; empty if nothing does."""
    arrivals = workload.arrivals
    if isinstance(arrivals, Trace) and arrivals.format in FORMATS and FORMATS[arrivals.format].block_tokens:
        return "hash ids in the trace"
    if workload.session is not None:
        return "the turns before them"
    if any(isinstance(stage, Generate) and stage.shared_prefix for stage in program):
        return "shared prefixes"
    return ""


def prompt_chains(program: Sequence[Stage], source: Source, block: int) -> PromptChains:
    """Return the blocks of the prompts of a workload, whose program is a single ``generate`` if it has jobs."""
    stage = program[0]
    if not source.count or not isinstance(stage, Generate):
        none = np.zeros(0, dtype=np.int64)
        return PromptChains(np.zeros(source.count + 1, dtype=np.int64), none, none, none, none, none)
    lengths = request_lengths(stage, source)
    if lengths.sessions is not None:
        return _of_sessions(lengths, lengths.sessions, block)
    if source.trace is not None and source.trace.blocks is not None:
        return _of_trace(stage, source, lengths.prompts, block)
    return _drawn(lengths, block)


def _of_trace(stage: Generate, source: Source, prompts: np.ndarray, block: int) -> PromptChains:
    trace = source.trace
    assert trace is not None and trace.blocks is not None  # noqa: S101  the caller looked
    if stage.shared_prefix:
        raise InputError(
            "the trace has hash ids, which say what prompts share",
            where=source.where((*stage.path, "shared_prefix")),
            expected="no shared_prefix",
        )
    of_file = trace.blocks
    counts = of_file.at[trace.rows + 1] - of_file.at[trace.rows]
    at = np.concatenate([[0], np.cumsum(counts)])
    runs = of_file.runs[np.repeat(of_file.at[trace.rows] - at[:-1], counts) + np.arange(at[-1])]
    runs, blocks = _with_own_ends(of_file, trace.rows, at, runs)
    chains = PromptChains(at, runs, blocks, blocks * block, of_file.home[trace.rows], prompts)
    wrong = np.flatnonzero(chains.job_blocks != -(-prompts // block))
    if len(wrong):
        job = int(wrong[0])
        raise InputError(
            f"this prompt has {chains.job_blocks[job]:,} hash ids of {block} tokens, and {prompts[job]:,} tokens",
            where=trace.place(job, "hash_ids"),
            expected=f"{-(-int(prompts[job]) // block):,} ids, or the prompt's own length in `generate`",
        )
    # The last block of a prompt may be partial.
    missing = chains.job_blocks * block - prompts
    shortest = np.zeros(len(blocks), dtype=np.int64)
    np.maximum.at(shortest, runs[at[1:] - 1], missing)
    return replace(chains, tokens=chains.tokens - shortest)


def _with_own_ends(
    of_file: BlockRuns, rows: np.ndarray, at: np.ndarray, runs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return runs and their blocks where copies of a row have the blocks that other rows have, and others of their own.

    Copies of a row, by which a trace is scaled, repeated or redrawn, stand for other jobs, whose prompts would not be
    equal to the last token.
    """
    _, first = np.unique(rows, return_index=True)
    is_copy = np.ones(len(rows), dtype=bool)
    is_copy[first] = False
    last = at[1:] - 1
    alone = np.bincount(of_file.runs, minlength=len(of_file.blocks)) == 1
    changed = last[is_copy & alone[runs[last]]]
    blocks = np.append(of_file.blocks, of_file.blocks[runs[changed]])
    runs = runs.copy()
    runs[changed] = len(of_file.blocks) + np.arange(len(changed))
    return runs, blocks


def _drawn(lengths: RequestLengths, block: int) -> PromptChains:
    """Return the chains of prompts that share at most prefixes: a run of each prefix, and then one of each job."""
    jobs, prefixes = len(lengths.prompts), lengths.prefixes
    common = (prefixes // block)[lengths.groups]
    own = -(-lengths.prompts // block) - common
    tokens = lengths.prompts - common * block
    with_own = own > 0
    counts = with_own.astype(np.int64) + (common > 0)
    at = np.concatenate([[0], np.cumsum(counts)])
    runs = np.zeros(int(at[-1]), dtype=np.int64)
    runs[at[:-1][common > 0]] = lengths.groups[common > 0]
    runs[at[1:][with_own] - 1] = len(prefixes) + np.flatnonzero(with_own)
    blocks = np.concatenate([prefixes // block, own])
    tokens = np.concatenate([prefixes // block * block, tokens])
    return PromptChains(at, runs, blocks, tokens, np.arange(jobs, dtype=np.int64), lengths.prompts)


def _of_sessions(lengths: RequestLengths, sessions: Sessions, block: int) -> PromptChains:
    """Return the chains of the prompts of sessions, each of which holds the last prompt and its answer.

    The runs are those of the prefixes, and of each request three: the full blocks that end in its prompt and in no
    earlier one or its answer; its partial last block, which the answer completes; and the full blocks that end in the
    answer. Of an answer all tokens but the last one are in the KV cache when the request ends.
    """
    prompts, jobs, of = lengths.prompts, len(lengths.prompts), sessions.of_job
    full, filled = prompts // block, (prompts + lengths.outputs - 1) // block
    is_first = np.zeros(jobs, dtype=bool)
    is_first[sessions.first[:-1]] = True
    common = (lengths.prefixes // block)[lengths.groups]
    before = np.where(is_first, common, np.concatenate([[0], filled[:-1]]))
    of_each = np.stack([full - before, prompts % block > 0, filled - full], axis=1)
    blocks = np.concatenate([lengths.prefixes // block, of_each.ravel()])
    partial = len(lengths.prefixes) + 3 * np.arange(jobs) + 1
    tokens = blocks * block
    tokens[partial] = prompts % block
    # What stays of each request, without empty runs: the prefix (before the first one), its blocks, and its answer's.
    steps = np.stack([np.where(is_first, lengths.groups, -1), partial - 1, partial + 1], axis=1)
    steps[(steps >= 0) & (blocks[steps] == 0)] = -1
    kept = steps >= 0
    stays = steps[kept]
    count = kept.sum(axis=1)
    begins = np.concatenate([[0], np.cumsum(count)])
    # The chain of a request ends before its own answer.
    last = begins[1:] - kept[:, 2]
    origin = begins[sessions.first[:-1]][of]
    with_partial = prompts % block > 0
    at = np.concatenate([[0], np.cumsum(last - origin + with_partial)])
    places = np.repeat(origin - at[:-1], np.diff(at)) + np.arange(at[-1])
    runs = stays[np.minimum(places, max(len(stays) - 1, 0))] if len(stays) else np.zeros(int(at[-1]), dtype=np.int64)
    runs[at[1:][with_partial] - 1] = partial[with_partial]
    answers = np.where(blocks[partial + 1] > 0, partial + 1, -1)
    return PromptChains(at, runs, blocks, tokens, of, prompts, answers)
