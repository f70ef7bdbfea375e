"""The prefix cache of devices with continuous batching, and the tiers below it, as a scenario states them."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Bytes, Quantity, as_custom, whole
from windtunnel.scenario.fields import Model as _Model


class StatedTier(_Model):
    """Memory below that of the devices, in which each replica keeps blocks of prompts."""

    size: Bytes = Field(description="memory for the blocks of each replica")
    bandwidth: Annotated[float, Quantity("B/s", positive=True, most=1e18)] | None = Field(
        None,
        description="rate at which a replica loads blocks from it; default of host: pinned copies over the host links "
        "of all devices of the replica",
    )


class StatedPrefixCache(_Model):
    """Blocks of prompts that a device has read are kept, and a later prompt that begins with them is not read again."""

    block: Annotated[int, BeforeValidator(whole), Field(ge=1, le=131_072)] | None = Field(
        None, description="tokens of a block; default: 16, or the size of the trace's own blocks"
    )
    blocks: Annotated[int, BeforeValidator(whole), Field(ge=1, le=2**30)] | None = Field(
        None,
        description="the blocks that each replica keeps, in memory of their own; default: what the KV memory has room "
        "for beside the running sequences",
    )
    host: StatedTier | None = Field(None, description="a tier in host memory, of each replica; default: none")
    disk: StatedTier | None = Field(None, description="a tier on disks, of each replica; default: none")

    @model_validator(mode="after")
    def _rates(self) -> Self:
        if self.disk is not None and self.disk.bandwidth is None:
            problem = "the rate at which blocks are loaded from the disks is not stated"
            raise as_custom(InputError(problem, expected="disk: {size: 4 TB, bandwidth: 12 GB/s}"))
        return self
