"""The blocks of the prompts of all jobs, for prefix caches.

A prompt of n tokens has n / block blocks, rounded up. Each stands for all tokens up to its end, so prompts share blocks
from the first one on. Blocks that occur only together are one run: the blocks of a shared prefix are one, and so are
those that only one job has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.engine.arrivals.hash_ids import BlockRuns
from windtunnel.engine.prepare.programs import Source
from windtunnel.scenario.arrivals import Trace
from windtunnel.scenario.program import Generate, Stage
from windtunnel.scenario.scenario import ContinuousBatch, Scenario
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


def prompt_chains(program: Sequence[Stage], source: Source, block: int) -> PromptChains:
    """Return the blocks of the prompts of a workload, whose program is a single ``generate`` if it has jobs."""
    stage = program[0]
    if not source.count or not isinstance(stage, Generate):
        none = np.zeros(0, dtype=np.int64)
        return PromptChains(np.zeros(source.count + 1, dtype=np.int64), none, none, none, none, none)
    prompts = np.broadcast_to(source.value(stage.prompt, (*stage.path, "prompt")), (source.count,)).astype(np.int64)
    if source.trace is not None and source.trace.blocks is not None:
        return _of_trace(stage, source, prompts, block)
    return _drawn(stage, source, prompts, block)


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
    blocks = of_file.blocks
    if trace.is_redrawn:
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

    The jobs of a redrawn trace stand for other jobs, whose prompts would not be equal to the last token.
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


def _drawn(stage: Generate, source: Source, prompts: np.ndarray, block: int) -> PromptChains:
    """Return the chains of prompts that share at most the workload's prefix: run 0, and a run of each job."""
    jobs = source.count
    shared = stage.shared_prefix
    if jobs and prompts.min() < shared:
        job = int(np.argmin(prompts))
        raise InputError(
            f"a prompt has {prompts[job]:,} tokens, and the prefix that all share {shared:,}",
            where=source.where((*stage.path, "shared_prefix")),
            expected="at most the shortest prompt, which includes the prefix",
        )
    common = shared // block
    own = -(-prompts // block) - common
    tokens = prompts - common * block
    with_own = own > 0
    counts = with_own.astype(np.int64) + (common > 0)
    at = np.concatenate([[0], np.cumsum(counts)])
    runs = np.zeros(int(at[-1]), dtype=np.int64)
    runs[at[1:][with_own] - 1] = 1 + np.flatnonzero(with_own)
    blocks, tokens = np.append(common, own), np.append(common * block, tokens)
    return PromptChains(at, runs, blocks, tokens, np.arange(jobs, dtype=np.int64), prompts)
