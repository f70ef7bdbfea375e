"""The model id of a command, and what the user has to supply where no published checkpoint is what was simulated."""

from __future__ import annotations

from windtunnel.core.speculation import Speculation
from windtunnel.deployment.arguments import Arguments
from windtunnel.deployment.replicas import PLACEHOLDER, Checkpoint, published_id
from windtunnel_models.models import known_architecture, model_names

_WIDE = ("float32", "float16", "bfloat16")


def online_fp8(checkpoint: Checkpoint) -> bool:
    """Return whether the weights are FP8 throughout and the checkpoint's have 16 bits, so that an engine converts."""
    stored = checkpoint.stored
    return stored is not None and set(checkpoint.wanted) == {"fp8"} and set(stored) <= set(_WIDE)


def serving_model(checkpoint: Checkpoint, arguments: Arguments, *, online: bool) -> tuple[str, bool]:
    """Return the model id of a command, and whether the engine converts the weights to FP8 when it loads them.

    ``online``: the engine can do so. Where the formats differ otherwise, the id is a placeholder and a note says what
    the user has to supply.
    """
    wanted, stored = checkpoint.wanted, checkpoint.stored
    formats = " and ".join(dict.fromkeys(wanted))
    if stored is None:
        arguments.note("weights", f"the scenario states an architecture; supply a checkpoint of it ({formats})")
        return checkpoint.placeholder(), False
    if wanted != stored and not online:
        base = checkpoint.published or (checkpoint.own.name if checkpoint.own is not None else checkpoint.name)
        arguments.note("weights", f"supply a checkpoint of {base} with {formats} weights in place of {PLACEHOLDER}/...")
        return checkpoint.placeholder("-".join(dict.fromkeys(wanted))), False
    if checkpoint.published is None:
        own = checkpoint.own.source if checkpoint.own is not None else checkpoint.name
        arguments.note("model", f"no Hugging Face id is known; supply the checkpoint of {own}")
        return checkpoint.placeholder(), online and wanted != stored
    arguments.note(
        "model", f"{checkpoint.published} is the checkpoint of the catalogue; a fine-tuned one of the same shape works"
    )
    return checkpoint.published, online and wanted != stored


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
