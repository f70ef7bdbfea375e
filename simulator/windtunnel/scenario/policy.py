"""The policy of a scenario: route and order, batches, and fair shares of tenants."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Model as _Model
from windtunnel.scenario.fields import Seconds, Text, as_custom, whole
from windtunnel.scenario.prefix_cache import StatedPrefixCache


class RequestBatch(_Model):
    """Up to ``size`` jobs of one workload are executed as one; a device with fewer jobs waits at most ``wait``."""

    kind: Literal["request"]
    size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=100_000)]
    wait: Seconds = 0.0


class ContinuousBatch(_Model):
    """Requests join and leave a device's batch at every step, as far as the KV cache has room."""

    kind: Literal["continuous"]
    size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=4096)] | None = Field(
        None, description="largest number of sequences in a step; default: that of the serving engine (generic: 256)"
    )
    tokens: Annotated[int, BeforeValidator(whole), Field(ge=16, le=131_072)] | None = Field(
        None,
        description="largest number of tokens in a step, including chunks of prompts; default: that of the serving "
        "engine (generic: 8192)",
    )
    memory: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="share of a device's memory, as the serving engine reads it; default: its own (generic: 0.9)"
    )
    prefix_cache: StatedPrefixCache | None = Field(
        None, description="keep the prompts that were read, for later ones that begin alike; default: none is kept"
    )


Share = Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)]
Charge = Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)]


class FairShares(_Model):
    """Of the tenants with waiting requests, the one that was served the fewest tokens for its weight is next."""

    weights: dict[Text, Share] = Field(
        default_factory=dict, description="shares of tenants by their names, relative to each other; 1 unless stated"
    )
    prompt: Charge = Field(1.0, description="what a token of a prompt counts that is read")
    output: Charge = Field(2.0, description="what a generated token counts")

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if self.prompt == 0 and self.output == 0:
            raise as_custom(InputError("tokens that count nothing", expected="prompt or output above 0"))
        return self


class WeightedRoute(_Model):
    """A route to the device with the smallest weighted sum."""

    weights: dict[Text, Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]] = Field(
        min_length=1,
        description="numbers by what they multiply: jobs, backlog_s, estimate_s, cost_usd, energy_j, hit_tokens, "
        "kv_tokens, running, turns_from_home, has_adapter",
    )


class PolicyParts(_Model):
    """A named policy, or a route and an order; and how jobs are batched."""

    name: Text | None = None
    route: Text | WeightedRoute | None = None
    order: Text | None = None
    batch: Annotated[RequestBatch | ContinuousBatch, Field(discriminator="kind")] | None = None
    preemption: Literal["resume", "restart"] | None = Field(
        None,
        description="a waiting job interrupts a job in progress that comes after it in the order: one that later "
        "continues (resume), or starts again from its last checkpoint or the beginning (restart); default: never",
    )
    decode_route: Text | WeightedRoute | None = Field(
        None,
        description="the route that chooses the replica to which a request moves when its prompt has been read by an "
        "entry with the role prefill; default: least-loaded",
    )
    fair: FairShares | None = Field(
        None,
        description="continuous batches admit requests by the tokens that were served to each tenant; default: in the "
        "order of the policy alone",
    )
    backfill: bool = Field(
        False, description="whether later jobs may start on the devices for which a job with `gang` waits"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.name is None) == (self.route is None and self.order is None):
            raise as_custom(
                InputError("a policy is a name, or a route and an order", expected="name, or route and order")
            )
        return self
