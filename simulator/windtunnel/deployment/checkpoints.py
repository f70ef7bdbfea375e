"""The model id of a command, and what the user has to supply where no published checkpoint is what was simulated."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.core.speculation import Speculation
from windtunnel.deployment.arguments import Arguments
from windtunnel.deployment.replicas import PLACEHOLDER, Checkpoint, published_id
from windtunnel_models.models import known_architecture, model_names

WIDE = ("float32", "float16", "bfloat16")
"""Formats between which every engine converts when it loads a checkpoint."""


def conversion(checkpoint: Checkpoint) -> str | None:
    """Return the one format to which an engine could convert the published weights; None if there is none to name.

    It is one of ``WIDE``, or FP8 throughout, from weights of 16 bits or more.
    """
    stored, wanted = checkpoint.stored, set(checkpoint.wanted)
    if stored is None or checkpoint.wanted == stored or not set(stored) <= set(WIDE) or len(wanted) > 1:
        return None
    (only,) = wanted
    return only if only in (*WIDE, "fp8") else None


def serving_model(
    checkpoint: Checkpoint, arguments: Arguments, converts: Sequence[str] = (*WIDE, "fp8")
) -> tuple[str, str | None]:
    """Return the model id of a command, and the format to which the engine has to convert the weights, or None.

    ``converts`` has the formats to which the engine can. Where the formats differ otherwise, the id is a placeholder
    and a note says what the user has to supply.
    """
    wanted, stored, to = checkpoint.wanted, checkpoint.stored, conversion(checkpoint)
    to = to if to in converts else None
    formats = " and ".join(dict.fromkeys(wanted))
    if stored is None:
        arguments.note("weights", f"the scenario states an architecture; supply a checkpoint of it ({formats})")
        return checkpoint.placeholder(), None
    if wanted != stored and to is None:
        base = checkpoint.published or (checkpoint.own.name if checkpoint.own is not None else checkpoint.name)
        arguments.note("weights", f"supply a checkpoint of {base} with {formats} weights in place of {PLACEHOLDER}/...")
        return checkpoint.placeholder("-".join(dict.fromkeys(wanted))), None
    if checkpoint.published is None:
        own = checkpoint.own.source if checkpoint.own is not None else checkpoint.name
        arguments.note("model", f"no Hugging Face id is known; supply the checkpoint of {own}")
        return checkpoint.placeholder(), to
    arguments.note(
        "model",
        f"the command serves {checkpoint.published}; a checkpoint of the same shape, such as one tuned for chat, takes "
        "as long",
    )
    return checkpoint.published, to


def draft_id(checkpoint: Checkpoint, speculation: Speculation, arguments: Arguments) -> str | None:
    """Return the model id of a draft; None where it is part of the decoder, or there is none (mtp, ngram)."""
    name = speculation.draft.name
    arguments.note("speculation", "the acceptance of drafted tokens is an assumption of the scenario; measure it")
    if name in ("mtp", "ngram"):
        return None
    if name in ("eagle", "medusa"):
        arguments.note("speculation", f"supply a draft ({name}) that was trained for the model")
        return checkpoint.placeholder(name)
    plain = name.lower().removesuffix("-fp8")
    known = next((n for n in (plain, plain.removesuffix("-instruct")) if n in model_names()), None)
    published = None if known is None else published_id(known_architecture(known))
    if published is None:
        arguments.note("speculation", f"no Hugging Face id is known of the draft '{name}'; supply its checkpoint")
        return f"{PLACEHOLDER}/{name}"
    return published
