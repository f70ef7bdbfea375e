"""The trace formats that are known by name."""

from typing import NamedTuple


class TraceFormat(NamedTuple):
    """The columns of a known trace format."""

    time: str
    """Name of the arrival-time column."""
    columns: tuple[str, ...]
    """All required columns."""
    per_second: int = 1
    """The unit of times: so many are a second."""
    block_tokens: int = 0
    """The tokens of a block, if the rows have hash ids of the blocks of their prompts (JSON lines); else 0."""


_POD_COLUMNS = (
    "name cpu_milli memory_mib num_gpu gpu_milli gpu_spec qos pod_phase creation_time deletion_time scheduled_time"
)
FORMATS = {
    "azure-llm": TraceFormat("TIMESTAMP", ("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    "mooncake": TraceFormat(
        "timestamp", ("timestamp", "input_length", "output_length", "hash_ids"), per_second=1000, block_tokens=512
    ),
    "openb-pods": TraceFormat("creation_time", tuple(_POD_COLUMNS.split())),
}
"""The known trace formats, by name."""
