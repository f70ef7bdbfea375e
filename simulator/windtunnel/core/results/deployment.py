"""The configuration that deploys a fleet: the command of each serving engine, and what no argument expresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import OPTIONAL, Result

OPTIONS_FILE, POD_IP = "OPTIONS", "$(POD_IP)"
"""Stand for the path of a command's file of options, and for the address of the pod or the host, where it runs."""
FIRST_NODE, NODE_RANK = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"
"""Stand for the address of the first node of a replica on several nodes, and for the number of a node, from 0.

A LeaderWorkerSet of Kubernetes (https://lws.sigs.k8s.io, since its version 0.6) sets both variables.
"""


@dataclass(frozen=True)
class Argument(Result):
    """A flag of an engine with its value (None for a switch), and the key of the scenario that it expresses."""

    flag: str
    value: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Unexpressed(Result):
    """What the user has to supply or to do beside the arguments, and the key of the scenario that it is about."""

    key: str
    text: str


@dataclass(frozen=True, kw_only=True)
class EngineCommand(Result):
    """The command that starts one replica of a fleet entry.

    ``options`` is the content of a file beside the command that an argument names (TensorRT-LLM), and
    ``option_keys`` are the keys of the scenario that it expresses. ``replicas`` is the largest number where the entry
    is scaled, and ``least_replicas`` then the smallest. ``resource`` is the name of the devices in Kubernetes; None
    for processors. ``node_selector`` has the labels of the nodes that pods need. ``worker_arguments`` are further ones
    of the nodes of a replica other than the first; None where the same command on each node does not start a replica on
    several nodes.
    """

    name: str
    entry: str
    device: str
    engine: str
    title: str
    checked: Sequence[str]
    model: str
    role: str
    replicas: int
    least_replicas: int | None = field(default=None, metadata=OPTIONAL)
    devices_per_replica: int
    nodes_per_replica: int
    resource: str | None
    image: str
    node_selector: Mapping[str, str] | None = field(default=None, metadata=OPTIONAL)
    port: int
    program: Sequence[str]
    arguments: Sequence[Argument]
    options: Mapping[str, object]
    option_keys: Sequence[str]
    environment: Mapping[str, str]
    unexpressed: Sequence[Unexpressed]
    worker_arguments: Sequence[Argument] | None = field(default=None, metadata=OPTIONAL)

    @property
    def words(self) -> list[str]:
        """The command as a list of words."""
        flags = [word for a in self.arguments for word in (a.flag, *(() if a.value is None else (a.value,)))]
        return [*self.program, *flags]


@dataclass(frozen=True, kw_only=True)
class Deployment(Result):
    """The commands of a fleet, and what of the scenario stands outside of the engines, such as the route."""

    commands: Sequence[EngineCommand]
    unexpressed: Sequence[Unexpressed]
