"""``cupy.cuda.texture``: textures, which are refused by name."""

from __future__ import annotations

from windtunnel.emulate.cupy.refusals import refused

ChannelFormatDescriptor, ResourceDescriptor, TextureDescriptor = (
    refused(f"cupy.cuda.texture.{name}")
    for name in ("ChannelFormatDescriptor", "ResourceDescriptor", "TextureDescriptor")
)
CUDAarray, TextureObject, SurfaceObject, TextureReference = (
    refused(f"cupy.cuda.texture.{name}") for name in ("CUDAarray", "TextureObject", "SurfaceObject", "TextureReference")
)
