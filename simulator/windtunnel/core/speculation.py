"""Speculative decoding: a draft proposes tokens for each decoding sequence, and the decoder verifies them in one step.

A step first runs ``tokens`` passes of the draft. The first one reads the tokens that the last step produced, padded to
the most that there may be (as in vLLM, whose drafts run on padded batches), and the prompts of the step; each later one
reads one token of each sequence. Then the decoder processes ``tokens`` + 1 tokens of each sequence, and accepts drafted
tokens up to the first one that it would not have produced itself; in its place it produces one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.architecture import Architecture, Layers, Weights
from windtunnel.core.errors import InputError, Location
from windtunnel.core.group import Group
from windtunnel.core.provenance import assumed

HEADS = ("eagle", "mtp", "medusa", "ngram")
"""Drafts that are no decoders of their own."""
MOST_TOKENS = 16
"""The most tokens that may be drafted (vLLM limits n-grams and heads to fewer)."""

PASS_HOST_SHARE = assumed(
    0.1,
    0.0,
    0.5,
    "the host's time of a pass of the draft, as a share of that of a step: a pass prepares the metadata of attention "
    "and launches, but neither schedules requests nor returns tokens; no measurement was found",
)


@dataclass(frozen=True)
class Draft:
    """What proposes tokens.

    Args:
        name: The name of the decoder, or one of ``HEADS``.
        model: What one pass runs; None if nothing runs on the devices (``ngram``).
        joined: The hidden states that a projection joins into one before the first layer: EAGLE and MTP join that of
            the last token with the embedding of the next one, and a Medusa head transforms a single one.
        reads_prompts: Whether the draft has a KV cache, for which it also reads prompts.
        owns_ends: Whether it has an embedding and an output projection beside those of the decoder.
        several: Whether each pass has weights of its own, as the heads of Medusa do.
    """

    name: str
    model: Architecture | None = None
    joined: int = 0
    reads_prompts: bool = True
    owns_ends: bool = False
    several: bool = False

    def weight_bytes(self, group: Group, tokens: int) -> float:
        """Return the weights of a draft that is no decoder of its own, on one device of ``group`` (bytes)."""
        if self.model is None:
            return 0.0
        model, bits = self.model, self.model.weights.bits(self.model.weights.linear)
        one = sum(layers.count * model.layer_bytes(layers) for layers in model.layers) / group.tensor
        one += self.joined * model.width**2 * bits / 8.0
        if self.owns_ends:
            one += model.vocabulary * model.width / group.tensor * model.weights.bits(model.weights.other) / 8.0
        return one * (tokens if self.several else 1)


def draft_of(name: str, target: Architecture) -> Draft:
    """Return one of ``HEADS`` for a decoder.

    ``eagle`` and ``mtp`` are one layer like the decoder's last one behind a projection of two hidden states, and share
    its embedding and output projection; EAGLE's weights have 16 bits, as its published checkpoints do, and those of MTP
    the formats of the decoder (Li and others, ICML 2024; DeepSeek-V3, section 2.2). ``medusa`` is a residual block and
    an output projection for each drafted token, which run on the last hidden state (Cai and others, ICML 2024).
    ``ngram`` finds earlier occurrences of the last tokens on the host.

    Raises:
        InputError: for ``mtp``, if the decoder's checkpoint has no layers for multi-token prediction.
    """
    if name == "mtp" and not target.mtp_layers:
        others = ", ".join(head for head in HEADS if head != "mtp")
        raise InputError(
            f"{target.name} has no layers for multi-token prediction",
            expected=f"a model whose config.json has them (num_nextn_predict_layers), or another draft: {others}, or a "
            "smaller model",
        )
    last = replace(target.layers[-1], count=1)
    wide = Weights("bfloat16", "bfloat16", target.weights.other)
    if name == "eagle":
        return Draft(name, _head(target, name, (last,), wide), joined=2)
    if name == "mtp":
        return Draft(name, _head(target, name, (last,), target.weights), joined=2)
    if name == "medusa":
        model = _head(target, name, (), wide)
        return Draft(name, model, joined=1, reads_prompts=False, owns_ends=True, several=True)
    return Draft(name, reads_prompts=False)


def decoder_draft(name: str, model: Architecture, target: Architecture) -> Draft:
    """Return a decoder as a draft for ``target``.

    Raises:
        InputError: if their vocabularies differ in size, which vLLM refuses too: a drafted token is a number in the
            vocabulary (``verify_equal_vocab_size_if_draft_model`` of ``vllm/config/speculative.py``).
    """
    if model.vocabulary != target.vocabulary:
        raise InputError(
            f"the draft {name} has a vocabulary of {model.vocabulary:,} tokens, and {target.name} one of "
            f"{target.vocabulary:,}",
            expected="a draft with the vocabulary of the model, such as a smaller model of the same family",
        )
    return Draft(name, model, owns_ends=True)


def _head(target: Architecture, name: str, layers: tuple[Layers, ...], weights: Weights) -> Architecture:
    return replace(target, name=f"{target.name}-{name}", layers=layers, weights=weights, tied=False)


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding of a decoder.

    Args:
        draft: What proposes tokens.
        tokens: How many it proposes for each sequence in each step.
        acceptance: The probability that the token at a position is accepted if all before it are; the last one also
            holds at later positions.
        tensor: The devices that share the draft; None: as many as share the decoder.
    """

    draft: Draft
    tokens: int
    acceptance: tuple[float, ...] = (1.0,)
    tensor: int | None = None

    @property
    def query_tokens(self) -> int:
        """The tokens of each decoding sequence that a step verifies."""
        return self.tokens + 1

    @property
    def reached(self) -> np.ndarray:
        """The probability that at least 1, 2, ... drafted tokens are accepted; shape (tokens,)."""
        places = np.minimum(np.arange(self.tokens), len(self.acceptance) - 1)
        return np.cumprod(np.array(self.acceptance, dtype=np.float64)[places])

    @property
    def expected_tokens(self) -> float:
        """The expected number of tokens that a sequence produces in a step, which no end of its output cuts off."""
        return 1.0 + float(self.reached.sum())

    def group_of(self, group: Group) -> Group:
        """Return how the draft is divided, where the decoder is divided among ``group``.

        Raises:
            InputError: if the group has pipeline stages, or does not divide the draft.
        """
        if group.pipeline > 1:
            raise InputError(
                "speculative decoding does not support pipeline stages",
                where=Location(field="pipeline"),
                expected="pipeline: 1",
            )
        if self.tensor is None:
            divided = group
        elif self.tensor not in (1, group.tensor):
            raise InputError(
                f"{self.tensor} devices share the draft, and {group.tensor} the decoder",
                where=Location(field="draft_tensor"),
                expected=" or ".join(map(str, sorted({1, group.tensor}))),
            )
        else:
            divided = Group(tensor=self.tensor, attention_data=group.attention_data)
        if self.draft.model is not None and self.draft.model.layers:
            divided.check(self.draft.model)
        return divided
