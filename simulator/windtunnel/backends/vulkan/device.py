"""An open Vulkan device: its memory, queue, kernels and timestamps. `Device.close` destroys them all.

All work goes to one queue. Each piece is a command buffer that ends with a barrier, so that work is executed in the
order of submission, whichever stream it belongs to. A timeline semaphore counts what has completed.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.backends.vulkan.api import Api, Physical, RefusedError, VulkanError, create_device, create_instance
from windtunnel.core.errors import DeviceOutOfMemory, InvalidArgument
from windtunnel.runtime.interface import Dims

_SLICE_NS = 1_000_000_000
"""Length of one wait. The host can be interrupted between two of them."""
_STAMPS = 256
"""Number of timestamps in a pool."""
_IN_FLIGHT = 1024
"""Maximum number of command buffers in flight. Submitting more waits for the first of them."""
_CHUNK = 1 << 26
"""Number of bytes that are staged at once."""
_MIN_STAGE = 1 << 16
_ENTRY = b"main"
_WHOLE = 2**64 - 1
"""VK_WHOLE_SIZE, which the package defines as -1."""


@dataclass(eq=False)
class Memory:
    """A buffer. ``host_bytes``: its bytes as the host sees them; None if the host cannot see them."""

    device: Device
    size: int
    buffer: Any
    memory: Any
    host_bytes: np.ndarray | None


@dataclass(eq=False)
class Stamp:
    """A timestamp query. It is reused when nobody refers to it any more."""

    device: Device
    pool: Any
    at: int

    def __del__(self) -> None:
        self.device.stamps.append((self.pool, self.at))


@dataclass(eq=False)
class Mark:
    """A point in the queue's work: the value of the semaphore there."""

    value: int
    stamp: Stamp | None = None
    began: Stamp | None = None
    """Start of a timed launch, whose end is ``stamp``."""


@dataclass(eq=False)
class Queue:
    """A stream's position in the one queue: the value after its last work."""

    value: int = 0


@dataclass(frozen=True)
class Kernel:
    """A module and its parameters. ``numbers`` is the layout of the push constants. It belongs to no device."""

    name: str
    module: bytes
    arrays: Sequence[str]
    numbers: np.dtype[Any]


@dataclass(eq=False)
class _Loaded:
    """A kernel that is loaded on a device."""

    module: Any
    sets: Any
    layout: Any
    pipelines: dict[Dims, Any] = field(default_factory=dict)
    free: list[_Bound] = field(default_factory=list)
    pools: list[Any] = field(default_factory=list)
    left: int = 0
    """Number of sets that the last pool can still allocate."""


@dataclass(eq=False)
class _Bound:
    """A descriptor set, and the memories that it was last bound to."""

    native: Any
    writes: Any
    infos: Any
    memories: tuple[Memory, ...] = ()
    """Not the buffers' handles: a new buffer may have the handle of a freed one, and a set that is not written again
    would refer to the freed one."""


class Device:
    """An open device. ``staged``: buffers are invisible to the host; None selects this for discrete cards."""

    def __init__(self, api: Api, physical: Physical, staged: bool | None = None, count: int = 0) -> None:
        self.api, self.physical = api, physical
        self.staged = physical.discrete if staged is None else staged
        self.submitted = self.done = count
        self.stamps: list[tuple[Any, int]] = []
        self._first: list[Callable[[], object]] = []
        self._undo: list[Callable[[], object]] = []
        self._flight: deque[tuple[int, Any, Sequence[Callable[[], object]]]] = deque()
        self._commands: list[Any] = []
        self._stages: list[Memory] = []
        self._held: dict[int, tuple[Any, Any]] = {}
        """(buffer, memory) of every allocation, by the buffer's handle."""
        self._kernels: dict[int, tuple[Kernel, _Loaded]] = {}
        self._finalizer = weakref.finalize(self, _destroy_all, self._first, self._undo)
        try:
            self._open()
        except BaseException:
            self._finalizer()
            raise

    def _open(self) -> None:
        api, physical = self.api, self.physical
        instance = create_instance(api)
        if instance is None:
            raise VulkanError("vkCreateInstance", -9)
        self._undo.append(lambda: api("vkDestroyInstance", instance, api.null))
        handle = api.listed("vkEnumeratePhysicalDevices", "VkPhysicalDevice", instance)[physical.number]
        self._types = api.new("VkPhysicalDeviceMemoryProperties")
        api("vkGetPhysicalDeviceMemoryProperties", handle, self._types)
        self.native = native = create_device(api, handle, physical)
        self._undo.append(lambda: api("vkDestroyDevice", native, api.null))
        held = self._held
        self._undo.append(lambda: _free_all(api, native, held))
        queue = api.ffi.new("VkQueue *")
        api("vkGetDeviceQueue", native, physical.family, 0, queue)
        self._queue = queue[0]
        flags = api.vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        info = api.new("VkCommandPoolCreateInfo", flags=flags, queueFamilyIndex=physical.family)
        self._pool = self._create("vkCreateCommandPool", "VkCommandPool", info, "vkDestroyCommandPool")
        kind = api.new("VkSemaphoreTypeCreateInfo", semaphoreType=api.vk.VK_SEMAPHORE_TYPE_TIMELINE)
        kind.initialValue = self.submitted
        info = api.new("VkSemaphoreCreateInfo", pNext=kind)
        self._semaphore = self._create("vkCreateSemaphore", "VkSemaphore", info, "vkDestroySemaphore")
        self._make_structs()
        self._first.append(lambda: _wait_idle(api, native))

    def _make_structs(self) -> None:
        """Create the structs that every call needs."""
        api, vk = self.api, self.api.vk
        self._semaphores = api.array("VkSemaphore", [self._semaphore])
        self._values = api.ffi.new("uint64_t[]", [0])
        self._count = api.ffi.new("uint64_t *")
        self._given = api.ffi.new("VkCommandBuffer[]", 1)
        timeline = api.new(
            "VkTimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._values
        )
        self._submit_info = api.new(
            "VkSubmitInfo", pNext=timeline, commandBufferCount=1, pCommandBuffers=self._given, signalSemaphoreCount=1,
            pSignalSemaphores=self._semaphores,
        )  # fmt: skip
        self._waited = api.ffi.new("uint64_t[]", [0])
        self._wait_info = api.new(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=self._semaphores, pValues=self._waited
        )
        once = vk.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
        self._begin = api.new("VkCommandBufferBeginInfo", flags=once)
        both = vk.VK_ACCESS_MEMORY_READ_BIT | vk.VK_ACCESS_MEMORY_WRITE_BIT
        self._barrier = api.new(
            "VkMemoryBarrier", srcAccessMask=vk.VK_ACCESS_MEMORY_WRITE_BIT,
            dstAccessMask=both | vk.VK_ACCESS_HOST_READ_BIT,
        )  # fmt: skip
        self._all = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        self._region = api.new("VkBufferCopy")

    def _create(self, create: str, kind: str, info: Any, destroy: str) -> Any:
        """Create an object that is destroyed with the device."""
        api, native = self.api, self.native
        handle = api.create(create, kind, native, info, api.null)
        self._undo.append(lambda: api(destroy, native, handle, api.null))
        return handle

    def close(self) -> None:
        """Wait for all work and destroy everything."""
        self._finalizer()

    # Memory.

    def allocate(self, size: int, *, host_visible: bool | None = None) -> Memory:
        """Allocate ``size`` bytes. ``host_visible`` None is the device's default. Raises RefusedError if too large."""
        api, vk = self.api, self.api.vk
        if size > self.physical.largest_bytes:
            problem = f"{size:,} bytes exceed the largest allocation, {self.physical.largest_bytes:,} bytes"
            raise RefusedError(problem, DeviceOutOfMemory)
        usage = vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
        info = api.new(
            "VkBufferCreateInfo", size=-(-size // 4) * 4, usage=usage | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
            sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE,
        )  # fmt: skip
        buffer = api.create("vkCreateBuffer", "VkBuffer", self.native, info, api.null)
        memory = api.null
        try:
            needs = api.new("VkMemoryRequirements")
            api("vkGetBufferMemoryRequirements", self.native, buffer, needs)
            host_visible = not self.staged if host_visible is None else host_visible
            kind = self._memory_type(needs.memoryTypeBits, host_visible)
            info = api.new("VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=kind)
            memory = api.create("vkAllocateMemory", "VkDeviceMemory", self.native, info, api.null)
            api("vkBindBufferMemory", self.native, buffer, memory, 0)
            view = self._map(memory, size) if host_visible else None
        except BaseException:
            _free(api, self.native, buffer, memory)
            raise
        allocated = Memory(self, size, buffer, memory, view)
        self._held[self._number(buffer)] = buffer, memory
        return allocated

    def _memory_type(self, able: int, host_visible: bool) -> int:
        """Return the best of the memory types ``able`` (bits): device-local, and visible to the host if required."""
        vk = self.api.vk
        own = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        host = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        preferred = [own | host | cached, own | host, host | cached, host] if host_visible else [own, 0]
        for properties in preferred:
            for at in range(self._types.memoryTypeCount):
                if able >> at & 1 and self._types.memoryTypes[at].propertyFlags & properties == properties:
                    return at
        raise VulkanError("vkAllocateMemory", -2, "no memory type of the buffer is visible to the host")

    def _map(self, memory: Any, size: int) -> np.ndarray:
        place = self.api.ffi.new("void **")
        self.api("vkMapMemory", self.native, memory, 0, _WHOLE, 0, place)
        return np.frombuffer(self.api.ffi.buffer(place[0], size), np.uint8)

    def free(self, memory: Memory) -> None:
        """Free memory that no work uses any more."""
        if self._held.pop(self._number(memory.buffer), None) is not None:
            _free(self.api, self.native, memory.buffer, memory.memory)
            memory.host_bytes = None

    def _number(self, buffer: Any) -> int:
        return int(self.api.ffi.cast("uintptr_t", buffer))

    def write(self, memory: Memory, data: np.ndarray) -> None:
        """Copy host bytes to a buffer. They may be changed when this returns."""
        if memory.host_bytes is not None:
            self.wait(self.submitted)
            memory.host_bytes[: data.size] = data
            return
        for at in range(0, data.size, _CHUNK):
            part = data[at : at + _CHUNK]
            stage = self._stage(part.size)
            assert stage.host_bytes is not None  # noqa: S101  a staging buffer is visible to the host
            stage.host_bytes[: part.size] = part
            self.copy(memory, at, stage, 0, part.size, lambda stage=stage: self._stages.append(stage))  # type: ignore[misc]

    def read(self, data: np.ndarray, memory: Memory) -> None:
        """Copy bytes of a buffer to the host, which waits for them."""
        if memory.host_bytes is not None:
            self.wait(self.submitted)
            data[:] = memory.host_bytes[: data.size]
            return
        for at in range(0, data.size, _CHUNK):
            part = data[at : at + _CHUNK]
            stage = self._stage(part.size)
            self.wait(self.copy(stage, 0, memory, at, part.size))
            assert stage.host_bytes is not None  # noqa: S101  a staging buffer is visible to the host
            part[:] = stage.host_bytes[: part.size]
            self._stages.append(stage)

    def _stage(self, size: int) -> Memory:
        """Return a staging buffer of at least ``size`` bytes. The caller puts it back after use."""
        self._reap()
        if self._flight and not self._stages:
            self.wait(self._flight[0][0])
        large_enough = [stage for stage in self._stages if stage.size >= size]
        if large_enough:
            smallest = min(large_enough, key=lambda stage: stage.size)
            self._stages.remove(smallest)
            return smallest
        return self.allocate(max(1 << (size - 1).bit_length(), _MIN_STAGE), host_visible=True)

    def copy(
        self, to: Memory, to_at: int, memory: Memory, at: int, size: int, *after: Callable[[], object]
    ) -> int:  # fmt: skip
        """Copy between buffers; ``after`` is called once the copy has completed. Return the semaphore's value then."""
        self._region.srcOffset, self._region.dstOffset, self._region.size = at, to_at, size
        commands = self._recording()
        self.api("vkCmdCopyBuffer", commands, memory.buffer, to.buffer, 1, self._region)
        return self._submit(commands, after)

    # Work.

    def _recording(self) -> Any:
        """Return a command buffer in recording state."""
        self._reap()
        if len(self._flight) >= _IN_FLIGHT:
            self.wait(self._flight[0][0])
        if not self._commands:
            level = self.api.vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY
            info = self.api.new(
                "VkCommandBufferAllocateInfo", commandPool=self._pool, level=level, commandBufferCount=1
            )
            self._commands.append(self.api.create("vkAllocateCommandBuffers", "VkCommandBuffer", self.native, info))
        commands = self._commands.pop()
        self.api("vkBeginCommandBuffer", commands, self._begin)
        return commands

    def _submit(self, commands: Any, after: Sequence[Callable[[], object]] = ()) -> int:
        """End and submit a command buffer; return the semaphore's value after it."""
        api, null, stages = self.api, self.api.null, self._all | self.api.vk.VK_PIPELINE_STAGE_HOST_BIT
        api("vkCmdPipelineBarrier", commands, self._all, stages, 0, 1, self._barrier, 0, null, 0, null)
        api("vkEndCommandBuffer", commands)
        value = self.submitted + 1
        self._values[0], self._given[0] = value, commands
        api("vkQueueSubmit", self._queue, 1, self._submit_info, null)
        self.submitted = value
        self._flight.append((value, commands, after))
        return value

    def reached(self, value: int) -> bool:
        """Return whether the semaphore has reached ``value``."""
        if value > self.done:
            self.api("vkGetSemaphoreCounterValue", self.native, self._semaphore, self._count)
            self.done = int(self._count[0])
        return value <= self.done

    def wait(self, value: int) -> None:
        """Wait until the semaphore has reached ``value``."""
        if not self.reached(value):
            self._waited[0] = value
            while self.api("vkWaitSemaphores", self.native, self._wait_info, _SLICE_NS) != 0:
                pass
            self.done = max(self.done, value)
        self._reap()

    def _reap(self) -> None:
        """Take back the resources of completed work."""
        flight = self._flight
        while flight and self.reached(flight[0][0]):
            _, commands, after = flight.popleft()
            self._commands.append(commands)
            for callback in after:
                callback()

    # Time.

    def mark(self) -> Mark:
        """Submit a timestamp, if the device has any, and return the point after it."""
        if not self.physical.stamp_bits:
            return Mark(self.submitted)
        commands = self._recording()
        stamp = self._write_stamp(commands)
        return Mark(self._submit(commands), stamp)

    def _write_stamp(self, commands: Any) -> Stamp:
        """Record a timestamp after all earlier commands."""
        if not self.stamps:
            kind = self.api.vk.VK_QUERY_TYPE_TIMESTAMP
            info = self.api.new("VkQueryPoolCreateInfo", queryType=kind, queryCount=_STAMPS)
            pool = self._create("vkCreateQueryPool", "VkQueryPool", info, "vkDestroyQueryPool")
            self.stamps += [(pool, at) for at in range(_STAMPS)]
        stamp = Stamp(self, *self.stamps.pop())
        self.api("vkCmdResetQueryPool", commands, stamp.pool, stamp.at, 1)
        bottom = self.api.vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        self.api("vkCmdWriteTimestamp", commands, bottom, stamp.pool, stamp.at)
        return stamp

    def elapsed_s(self, mark: Mark, since: Mark) -> float:
        """Return the seconds between two reached marks; the counter may have wrapped around once between them."""
        if mark.stamp is None or since.stamp is None:
            raise RefusedError(f"the compute queues of {self.physical.name} have no timestamps", InvalidArgument)
        ticks = self._ticks(mark.stamp) - self._ticks(since.stamp)
        period = 1 << self.physical.stamp_bits
        ticks = (ticks + period // 2) % period - period // 2
        return ticks * self.physical.tick_s

    def _ticks(self, stamp: Stamp) -> int:
        if stamp.device is not self:
            raise RefusedError("the event was recorded before a reset", InvalidArgument)
        ticks = self.api.ffi.new("uint64_t *")
        flags = self.api.vk.VK_QUERY_RESULT_64_BIT | self.api.vk.VK_QUERY_RESULT_WAIT_BIT
        self.api("vkGetQueryPoolResults", self.native, stamp.pool, stamp.at, 1, 8, ticks, 8, flags)
        return int(ticks[0]) & ((1 << self.physical.stamp_bits) - 1)

    # Kernels.

    def load(self, kernel: Kernel) -> None:
        """Load a kernel's module into the driver. Loading it again does nothing."""
        self._loaded(kernel)

    def _loaded(self, kernel: Kernel) -> _Loaded:
        known = self._kernels.get(id(kernel))
        if known is not None:
            return known[1]
        api, vk = self.api, self.api.vk
        words = api.ffi.from_buffer("uint32_t[]", kernel.module)
        info = api.new("VkShaderModuleCreateInfo", codeSize=len(kernel.module), pCode=words)
        module = self._create("vkCreateShaderModule", "VkShaderModule", info, "vkDestroyShaderModule")
        bindings = api.array(
            "VkDescriptorSetLayoutBinding",
            [
                api.new(
                    "VkDescriptorSetLayoutBinding", binding=at, descriptorCount=1,
                    descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                )
                for at in range(len(kernel.arrays))
            ],
        )  # fmt: skip
        info = api.new("VkDescriptorSetLayoutCreateInfo", bindingCount=len(kernel.arrays), pBindings=bindings)
        sets = self._create(
            "vkCreateDescriptorSetLayout", "VkDescriptorSetLayout", info, "vkDestroyDescriptorSetLayout"
        )
        pushed = api.new("VkPushConstantRange", stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT, size=kernel.numbers.itemsize)
        info = api.new(
            "VkPipelineLayoutCreateInfo", setLayoutCount=1, pSetLayouts=api.array("VkDescriptorSetLayout", [sets]),
            pushConstantRangeCount=int(kernel.numbers.itemsize > 0), pPushConstantRanges=pushed,
        )  # fmt: skip
        layout = self._create("vkCreatePipelineLayout", "VkPipelineLayout", info, "vkDestroyPipelineLayout")
        loaded = _Loaded(module, sets, layout)
        self._kernels[id(kernel)] = (kernel, loaded)
        return loaded

    def _pipeline(self, loaded: _Loaded, block: Dims) -> Any:
        """Return the pipeline for a block size, which is given by the specialisation constants 0, 1 and 2."""
        known = loaded.pipelines.get(block)
        if known is not None:
            return known
        api, vk = self.api, self.api.vk
        sizes = api.ffi.new("uint32_t[]", list(block))
        entries = api.array(
            "VkSpecializationMapEntry",
            [api.new("VkSpecializationMapEntry", constantID=at, offset=4 * at, size=4) for at in range(3)],
        )
        special = api.new("VkSpecializationInfo", mapEntryCount=3, pMapEntries=entries, dataSize=12, pData=sizes)
        stage = api.new(
            "VkPipelineShaderStageCreateInfo", stage=vk.VK_SHADER_STAGE_COMPUTE_BIT, module=loaded.module,
            pName=api.ffi.new("char[]", _ENTRY), pSpecializationInfo=special,
        )  # fmt: skip
        info = api.new("VkComputePipelineCreateInfo", layout=loaded.layout, stage=stage[0])
        handle = api.ffi.new("VkPipeline *")
        native = self.native
        api("vkCreateComputePipelines", native, api.null, 1, info, api.null, handle)
        pipeline = loaded.pipelines[block] = handle[0]
        self._undo.append(lambda: api("vkDestroyPipeline", native, pipeline, api.null))
        return pipeline

    def _bound(self, loaded: _Loaded, memories: tuple[Memory, ...]) -> _Bound:
        """Return a descriptor set of these buffers, preferably one that was bound to them last."""
        free = loaded.free
        at = next((at for at in range(len(free) - 1, -1, -1) if free[at].memories == memories), len(free) - 1)
        bound = free.pop(at) if free else self._new_set(loaded, len(memories))
        if bound.memories != memories:
            for at, memory in enumerate(memories):
                bound.infos[at].buffer = memory.buffer
            self.api("vkUpdateDescriptorSets", self.native, len(memories), bound.writes, 0, self.api.null)
            bound.memories = memories
        return bound

    def _new_set(self, loaded: _Loaded, count: int) -> _Bound:
        api, vk = self.api, self.api.vk
        kind = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        if not loaded.left:
            loaded.left = sets = 4 << 2 * min(len(loaded.pools), 4)
            size = api.new("VkDescriptorPoolSize", type=kind, descriptorCount=count * sets)
            info = api.new("VkDescriptorPoolCreateInfo", maxSets=sets, poolSizeCount=1, pPoolSizes=size)
            loaded.pools.append(
                self._create("vkCreateDescriptorPool", "VkDescriptorPool", info, "vkDestroyDescriptorPool")
            )
        info = api.new(
            "VkDescriptorSetAllocateInfo", descriptorPool=loaded.pools[-1], descriptorSetCount=1,
            pSetLayouts=api.array("VkDescriptorSetLayout", [loaded.sets]),
        )  # fmt: skip
        native = api.create("vkAllocateDescriptorSets", "VkDescriptorSet", self.native, info)
        loaded.left -= 1
        infos = api.ffi.new("VkDescriptorBufferInfo[]", count)
        writes = api.ffi.new("VkWriteDescriptorSet[]", count)
        for at in range(count):
            infos[at].range = _WHOLE
            writes[at].sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
            writes[at].dstSet, writes[at].dstBinding, writes[at].descriptorCount = native, at, 1
            writes[at].descriptorType, writes[at].pBufferInfo = kind, infos + at
        return _Bound(native, writes, infos)

    def busy_s(self, mark: Mark) -> float | None:
        """Return the device time of a reached launch; None if it was not timed."""
        return None if mark.began is None else self.elapsed_s(mark, Mark(0, mark.began))

    def launch(
        self, kernel: Kernel, grid: Dims, block: Dims, memories: Sequence[Memory], numbers: bytes, timed: bool = False
    ) -> Mark:
        """Submit a launch and return the point after it. Raises RefusedError if an array is too large."""
        for name, memory in zip(kernel.arrays, memories, strict=True):
            if memory.size > self.physical.bound_bytes:
                raise RefusedError(
                    f"array '{name}' has {memory.size:,} bytes; kernel arguments are limited to "
                    f"{self.physical.bound_bytes:,} bytes on this device (maxStorageBufferRange)",
                    InvalidArgument,
                )
        api, null = self.api, self.api.null
        loaded = self._loaded(kernel)
        pipeline = self._pipeline(loaded, block)
        compute = api.vk.VK_PIPELINE_BIND_POINT_COMPUTE
        commands = self._recording()
        after: list[Callable[[], object]] = []
        api("vkCmdBindPipeline", commands, compute, pipeline)
        if memories:
            bound = self._bound(loaded, tuple(memories))
            after.append(lambda: loaded.free.append(bound))
            sets = api.ffi.new("VkDescriptorSet[]", [bound.native])
            api("vkCmdBindDescriptorSets", commands, compute, loaded.layout, 0, 1, sets, 0, null)
        if numbers:
            stage = api.vk.VK_SHADER_STAGE_COMPUTE_BIT
            api("vkCmdPushConstants", commands, loaded.layout, stage, 0, len(numbers), api.ffi.from_buffer(numbers))
        if not (timed and self.physical.stamp_bits):
            api("vkCmdDispatch", commands, *grid)
            return Mark(self._submit(commands, after))
        began = self._write_stamp(commands)
        api("vkCmdDispatch", commands, *grid)
        ended = self._write_stamp(commands)
        return Mark(self._submit(commands, after), ended, began)


def _free(api: Api, native: Any, buffer: Any, memory: Any) -> None:
    api("vkDestroyBuffer", native, buffer, api.null)
    api("vkFreeMemory", native, memory, api.null)


def _free_all(api: Api, native: Any, held: dict[int, tuple[Any, Any]]) -> None:
    while held:
        _free(api, native, *held.popitem()[1])


def _wait_idle(api: Api, native: Any) -> None:
    """Wait for all work of a device. A lost device has none."""
    with suppress(VulkanError):
        api("vkDeviceWaitIdle", native)


def _destroy_all(first: list[Callable[[], object]], undo: list[Callable[[], object]]) -> None:
    """Call ``first``, then destroy all objects in reverse order of creation."""
    for function in first:
        function()
    while undo:
        undo.pop()()
