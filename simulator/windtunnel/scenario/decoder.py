"""The decoders that a scenario's `models` names: from the catalogue, from a configuration file, or by architecture."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from windtunnel.core.adapters import Adapters
from windtunnel.core.architecture import (
    FORMAT_BITS,
    Architecture,
    FeedForward,
    GroupedAttention,
    Layers,
    Weights,
)
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.speculation import HEADS, MOST_TOKENS, Draft, Speculation, decoder_draft, draft_of
from windtunnel.core.step_op import KV_FORMATS, parse_weights
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.fields import Model, Natural, Quantity, Text, as_custom, whole
from windtunnel_models.models import known_architecture, read_architecture

_OWN = ("layers", "width", "heads", "feed_forward")
_OWN_OPTIONAL = ("vocabulary", "kv_heads", "head_dim", "gated", "max_context", "dtype")
_DEFAULT_VOCABULARY = 32_000


@dataclass(frozen=True)
class ServedModel:
    """A decoder of a scenario, and the context of its operations."""

    architecture: Architecture
    dispatch: str
    clock: str
    speculation: Speculation | None = None
    adapters: Adapters | None = None


class WeightFormats(Model):
    """The number formats of the weights of attention and dense layers, and of experts."""

    linear: Text | None = None
    experts: Text | None = None


Acceptance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _listed(value: object) -> object:
    """Return a single number as a list of one."""
    return value if isinstance(value, list) else [value]


class StatedSpeculation(Model):
    """Speculative decoding: a draft proposes tokens, and the decoder verifies them in one step."""

    draft: Text = Field(description="another model of the scenario or of the catalogue, or eagle, mtp, medusa or ngram")
    tokens: Annotated[int, BeforeValidator(whole), Field(ge=0, le=MOST_TOKENS)] = Field(
        description="how many tokens are drafted for each sequence in a step; 0: none"
    )
    acceptance: Annotated[
        list[Acceptance],
        BeforeValidator(_listed, json_schema_input_type=float | list[float]),
        Field(min_length=1, max_length=MOST_TOKENS),
    ] = Field(
        description="the probability that a drafted token is accepted if those before it are, by position; the last "
        "one also holds for later positions"
    )
    draft_tensor: Natural | None = Field(
        None, description="devices that share the draft: 1, or as many as share the decoder, which is the default"
    )

    def speculation(
        self, target: Architecture, drafts: Mapping[str, Architecture], where: Callable[[str], Location]
    ) -> Speculation | None:
        """Return the speculative decoding of ``target``; None if no token is drafted.

        Args:
            target: The decoder that verifies.
            drafts: The decoders of the scenario by name.
            where: Returns the place of a key.

        Raises:
            InputError: if there is no such draft, or it is none for this decoder.
        """
        try:
            draft = self._draft(target, drafts)
        except InputError as error:
            raise error.at(where("draft")) from None
        return Speculation(draft, self.tokens, tuple(self.acceptance), self.draft_tensor) if self.tokens else None

    def _draft(self, target: Architecture, drafts: Mapping[str, Architecture]) -> Draft:
        if self.draft in HEADS:
            return draft_of(self.draft, target)
        found = drafts.get(self.draft)
        if found is None:
            try:
                found = known_architecture(self.draft)
            except InputError as error:
                raise InputError(
                    f"there is no draft '{self.draft}'",
                    expected=f"a model of the scenario or of `windtunnel models`, or {list_choices(HEADS)}",
                    nearest=nearest(self.draft, (*HEADS, *drafts)) or error.nearest,
                ) from None
        return decoder_draft(self.draft, found, target)


class StatedAdapters(Model):
    """LoRA adapters: their number and rank, and where a replica keeps them."""

    count: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1_000_000)] = Field(
        description="how many there are; requests name them by numbers from 1 on, and 0 is the model without any"
    )
    rank: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1024)] = Field(
        16, description="the rank of a slot, which every adapter takes; vLLM's --max-lora-rank"
    )
    slots: Annotated[int, BeforeValidator(whole), Field(ge=1, le=64)] = Field(
        1, description="adapters in the memory of a replica's devices, and in its batch; vLLM's --max-loras"
    )
    host: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1_000_000)] | None = Field(
        None, description="adapters in the memory of a replica's host; vLLM's --max-cpu-loras; default: all"
    )
    storage: Annotated[float, Quantity("B/s", positive=True)] | None = Field(
        None, description="the rate at which adapters that the host does not hold are read"
    )
    popularity: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = Field(
        1.0, description="exponent of the power law (Zipf) by which requests that name no adapter get one; 0: uniform"
    )

    @model_validator(mode="after")
    def _places(self) -> Self:
        if self.host is not None and self.host < self.slots:
            raise as_custom(
                InputError(
                    f"the host holds {self.host} adapters, and the devices {self.slots}", expected="host >= slots"
                )
            )
        if (self.host is not None and self.host < self.count) != (self.storage is not None):
            raise as_custom(
                InputError(
                    "adapters that the host does not hold are read from storage",
                    expected="storage (such as 2 GB/s) where host is less than count; without storage the host holds "
                    "all adapters",
                )
            )
        return self

    def adapters(self) -> Adapters:
        """Return the same without text."""
        host = min(self.count if self.host is None else self.host, self.count)
        return Adapters(self.count, self.rank, self.slots, host, self.storage or 0.0, self.popularity)


class DecoderModel(Model):
    """A decoder-only transformer: `catalogue`, `config`, or `layers`, `width`, `heads` and `feed_forward`."""

    catalogue: Text | None = None
    config: Text | None = None
    weights: Text | WeightFormats | None = None
    kv_dtype: Literal["float32", "float16", "bfloat16", "fp8", "int8"] | None = None
    layers: Natural | None = None
    width: Natural | None = None
    heads: Natural | None = None
    feed_forward: Natural | None = None
    vocabulary: Natural | None = None
    kv_heads: Natural | None = None
    head_dim: Natural | None = None
    max_context: Natural | None = None
    dtype: Literal["float32", "float16", "bfloat16", "fp8", "int8"] | None = None
    gated: bool | None = None
    dispatch: Literal["device", "graph", "eager"] = "graph"
    clock: Literal["burst", "sustained"] = "sustained"
    speculation: StatedSpeculation | None = Field(
        None, description="speculative decoding; default: each step gives one token of each sequence"
    )
    adapters: StatedAdapters | None = Field(None, description="LoRA adapters of the requests; default: none")

    @model_validator(mode="after")
    def _stated_once(self) -> Self:
        ways = [key for key in ("catalogue", "config") if getattr(self, key) is not None]
        own = [key for key in (*_OWN, *_OWN_OPTIONAL) if getattr(self, key) is not None]
        if len(ways) > 1 or (ways and own):
            raise as_custom(
                InputError(
                    f"a model with both {ways[0]} and {(ways[1:] + own)[0]}",
                    expected="catalogue, config, or the architecture (layers, width, heads, feed_forward)",
                )
            )
        if not ways:
            missing = [key for key in _OWN if getattr(self, key) is None]
            if missing:
                raise as_custom(
                    InputError(
                        f"a model without {missing[0]}",
                        expected="catalogue: NAME, config: FILE.json, or layers, width, heads and feed_forward",
                    )
                )
            self._check_heads()
        if self.dtype is not None and self.weights is not None:
            raise as_custom(InputError("a model with both dtype and weights", expected="one of them"))
        return self

    @field_validator("weights")
    @classmethod
    def _known_formats(cls, stated: str | WeightFormats | None) -> str | WeightFormats | None:
        for text in (stated.linear, stated.experts) if isinstance(stated, WeightFormats) else (stated,):
            if text is not None:
                _check_format(text)
        return stated

    def _check_heads(self) -> None:
        assert self.heads is not None and self.width is not None  # noqa: S101  the caller has checked it
        if self.head_dim is None and self.width % self.heads:
            raise as_custom(InputError(f"width {self.width} is not a multiple of heads {self.heads}"))
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise as_custom(InputError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}"))

    def architecture(self, name: str, folder: Path, where: Location) -> Architecture:
        """Return the architecture.

        Args:
            name: The model's name in the scenario.
            folder: The folder to which `config` is relative.
            where: The place of the model in the scenario, for messages.

        Raises:
            InputError: The catalogue has no such model, or the configuration cannot be read.
        """
        if self.catalogue is not None:
            found = known_architecture(self.catalogue)
        elif self.config is not None:
            found = read_architecture(folder / self.config)
        else:
            found = self._own(name)
        return replace(found, weights=self._formats(found.weights), kv_dtype=self.kv_dtype or found.kv_dtype)

    def _own(self, name: str) -> Architecture:
        assert self.layers and self.width and self.heads and self.feed_forward  # noqa: S101  validated
        stored = self.dtype or "bfloat16"
        attention = GroupedAttention(self.heads, self.kv_heads or self.heads, self.head_dim or self.width // self.heads)
        network = FeedForward(self.feed_forward, gated=self.gated is not False)
        kept = stored if FORMAT_BITS[stored] >= 16 else "bfloat16"
        return Architecture(
            name=name,
            width=self.width,
            vocabulary=self.vocabulary or _DEFAULT_VOCABULARY,
            layers=(Layers(self.layers, attention, network),),
            max_context=self.max_context,
            weights=Weights(stored, stored, kept),
            kv_dtype=stored if stored in (*KV_FORMATS, "float32") else "bfloat16",
            source="the scenario",
        )

    def _formats(self, own: Weights) -> Weights:
        stated = self.weights
        if stated is None:
            return own
        if isinstance(stated, WeightFormats):
            return replace(own, linear=stated.linear or own.linear, experts=stated.experts or own.experts)
        return parse_weights(stated, own)


def _check_format(text: str) -> None:
    try:
        parse_weights(text, Weights())
    except InputError as error:
        raise as_custom(error) from None


def served_models(models: dict[str, DecoderModel], document: Document) -> dict[str, ServedModel]:
    """Return the decoders of a scenario by name; raises InputError with the place of the first one that is wrong."""
    found_by_name: dict[str, Architecture] = {}
    for name, model in models.items():
        way = "catalogue" if model.catalogue is not None else "config" if model.config is not None else None
        where = document.where(("models", name) if way is None else ("models", name, way))
        try:
            found = model.architecture(name, Path(document.file).parent, where)
        except InputError as error:
            # A configuration file is a place of its own.
            raise (error if error.where.file else error.at(where)) from None
        found_by_name[name] = found
    return {name: _served(name, model, found_by_name, document) for name, model in models.items()}


def _served(name: str, model: DecoderModel, known: Mapping[str, Architecture], document: Document) -> ServedModel:
    """Return the decoder ``name`` of the scenario, where ``known`` has the architectures of all of them."""
    path = ("models", name, "speculation")
    stated = model.speculation
    speculation = (
        None if stated is None else stated.speculation(known[name], known, lambda key: document.where((*path, key)))
    )
    adapters = None if model.adapters is None else model.adapters.adapters()
    return ServedModel(known[name], model.dispatch, model.clock, speculation, adapters)
