"""The entries of a scenario's fleet: devices, their groups, power limits, nodes and network."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.scenario.fields import (
    Bytes,
    Count,
    PricePerHour,
    Quantity,
    Seconds,
    Text,
    Watts,
    as_custom,
    whole,
)
from windtunnel.scenario.fields import Model as _Model

Ranks = Annotated[int, BeforeValidator(whole), Field(ge=1, le=65_536)]


class PowerLimits(_Model):
    """The power of an idle device, and its power cap (for `server`, the power of a busy device)."""

    idle: Watts | None = None
    max: Watts | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.idle is not None and self.max is not None and self.idle > self.max:
            raise as_custom(InputError("idle power is above max", expected="idle <= max"))
        return self


HOSTED = {
    "cpu": "host@native", "offload": "host@native", "packets": "host@native", "opencl": "host@opencl",
    "wgpu": "host@wgpu", "vulkan": "host@vulkan",
}  # fmt: skip
"""The model of a back end's device on a host without an accelerator: the host's own processor."""


class GroupKeys(_Model):
    """How the devices of a group divide a decoder; see `core.group.Group`."""

    tensor: Ranks = Field(1, description="devices that share every attention layer and dense layer")
    pipeline: Ranks = Field(1, description="stages, each with a part of the layers")
    attention_data: Ranks = Field(1, description="copies of the attention, each with a part of the sequences")
    expert: Ranks = Field(1, description="devices that each hold a part of the experts, whole")
    expert_tensor: Ranks | None = Field(
        None, description="devices that share every expert; default: tensor x attention_data / expert"
    )

    @model_validator(mode="after")
    def _divides(self) -> Self:
        try:
            self.group()
        except InputError as error:
            raise as_custom(error) from None
        return self

    def group(self) -> Group:
        """Return the division of a decoder."""
        return Group(self.tensor, self.pipeline, self.attention_data, self.expert, self.expert_tensor)


class Node(_Model):
    """The node of a fleet entry's devices: how many are linked directly, and the rate of a device's link to them."""

    devices: Ranks | None = None
    link: Annotated[float, Quantity("B/s", positive=True, most=1e18)] | None = Field(
        None, description="rate of a device's link to the others of its node, in one direction"
    )


class Network(_Model):
    """The network between nodes, for each device: its rate in one direction, and the time of a message's step."""

    bandwidth: Annotated[float, Quantity("B/s", positive=True, most=1e18)] | None = None
    latency: Seconds | None = None


class StepLimits(_Model):
    """Limits of the steps of an entry that serves decoders, which replace those of the policy's batch."""

    size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=4096)] | None = Field(
        None, description="largest number of sequences in a step"
    )
    tokens: Annotated[int, BeforeValidator(whole), Field(ge=16, le=131_072)] | None = Field(
        None, description="largest number of tokens in a step, including chunks of prompts"
    )
    memory: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="share of a device's memory, as the serving engine reads it"
    )


Role = Literal["prefill", "decode", "both"]


class FleetEntry(_Model):
    """``count`` devices of one SKU, reached through one API (``SKU`` or ``SKU@API``).

    With ``real`` it is a device of this host that executes the operations. ``device`` is then the model by which routes
    estimate its times.
    """

    real: Text | None = Field(
        None, description="a device of this host, as `windtunnel devices --real` names it: opencl:0"
    )
    device: Text = Field("", description="SKU or SKU@API; for a real device its model, by default what it is")
    count: Count = 1
    name: Text | None = Field(None, description="name of these devices; default: the SKU")
    speed: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    price: PricePerHour | None = None
    power: PowerLimits = PowerLimits()
    memory: Bytes | None = Field(None, description="memory size that replaces the SKU's own")
    calibration: Text | None = Field(
        None,
        description="an overlay of `windtunnel calibrate`, of an operation or of serving; none: no measurement of this "
        "SKU; default: as shipped",
    )
    streams: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1024)] = Field(
        1, description="number of jobs that a device executes at the same time"
    )
    chip: Text | None = Field(
        None,
        description="name of the chip that these devices are; entries with the same chip reach it through different "
        "APIs, and its power is counted once; default: `host` for the host's own processor, else a chip of its own",
    )
    resident: Annotated[list[Text], Field(max_length=64)] | None = Field(
        None,
        description="designs that each card of a reconfigurable kind (fpga) holds when the run begins, such as "
        "gemm_float16, or gemm if jobs need one design of it; default: those that the workloads need, in their order, "
        "as many as the card holds",
    )
    group: GroupKeys | None = Field(
        None,
        description="division of each decoder over several devices, which form one replica; `count` counts devices",
    )
    engine: Literal["vllm", "sglang", "trtllm", "generic"] = Field(
        "generic", description="the serving engine whose profile applies to these devices"
    )
    role: Role = Field(
        "both",
        description="what these replicas do for a request: read its prompt (prefill), produce its further tokens "
        "(decode), or both",
    )
    node: Node = Field(Node(), description="the node of these devices; default: that of the SKU")
    batch: StepLimits | None = Field(
        None,
        description="limits of a step with continuous batching; default: those of the policy's batch, or else of the "
        "engine",
    )

    @property
    def group_size(self) -> int:
        """The devices of one replica."""
        return self.group.group().devices if self.group is not None else 1

    @property
    def replicas(self) -> int:
        """The groups of the entry; without a group every device is one."""
        return self.count // self.group_size

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        size = self.group_size
        if "count" not in self.model_fields_set:
            object.__setattr__(self, "count", size)  # one group
        if self.count % size:
            below, above = self.count // size * size, (self.count // size + 1) * size
            expected = f"a `count` that is a multiple of {size}, such as {above}" + (f" or {below}" if below else "")
            expected += ", or none in a file for `windtunnel plan`, which does not read it"
            raise as_custom(
                InputError(f"{self.count} devices are not a whole number of groups of {size}", expected=expected)
            )
        if size > 1:
            for key, stated in (("streams", self.streams > 1), ("chip", self.chip), ("real", self.real)):
                if stated:
                    raise as_custom(
                        InputError(f"a group with {key}", expected=f"an entry without {key}, or one without group")
                    )
        return self

    @property
    def chip_name(self) -> str | None:
        """The name of the chip that other entries may reach too; None if it has none."""
        return self.chip or ("host" if self.device.partition("@")[0] == "host" else None)

    @model_validator(mode="after")
    def _one_real_device(self) -> Self:
        if self.real is None:
            if not self.device:
                raise as_custom(InputError("a fleet entry without a device", expected="device: SKU, or real: opencl:0"))
            return self
        for what, stated in (("count", self.count != 1), ("speed", self.speed != 1.0), ("streams", self.streams != 1)):
            if stated:
                raise as_custom(
                    InputError(
                        f"a real device with {what} {getattr(self, what):g}",
                        expected="one entry for each real device, without this key",
                    )
                )
        way, colon, number = self.real.partition(":")
        if not way or not colon or not number.isdecimal() or number != str(int(number)):
            raise as_custom(
                InputError(f"'{self.real}' is not the name of a device", expected="a back end and a number: opencl:0")
            )
        if not self.device and way in HOSTED:
            self.modelled_as(HOSTED[way])
        return self

    def modelled_as(self, device: str) -> None:
        """Set the model of a real device that does not state one, as soon as the device itself says what it is."""
        object.__setattr__(self, "device", device)
