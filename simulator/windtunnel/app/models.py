"""`windtunnel models`: the decoders that are known by name."""

from __future__ import annotations

from windtunnel.core.results.catalogue import KnownModel
from windtunnel_models.models import known_architectures


def list_models() -> list[KnownModel]:
    """Return every known decoder, in alphabetical order."""
    return [
        KnownModel(
            model=known.name,
            parameters=known.parameters,
            active_parameters=known.active_parameters,
            weight_bytes=known.weight_bytes,
            kv_bytes_per_token=known.kv_bytes_per_token,
            source=known.source,
            layers=known.layer_count,
            weights=known.weights.linear,
            experts=known.weights.experts if known.active_parameters < known.parameters else None,
            kv_dtype=known.kv_dtype,
            state_bytes=known.state_bytes,
            max_context=known.max_context,
        )
        for known in known_architectures()
    ]
