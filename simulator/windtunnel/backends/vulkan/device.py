"""An open Vulkan device: its memory, its one queue, its kernels, its time stamps; all is given back by `Device.close`.

All work goes to one queue, a command buffer each, and each ends with a barrier for whatever follows: work is done in
the order in which it is given, of whatever stream it is. A timeline semaphore counts what is done.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.backends.vulkan.api import Api, Physical, RefusedError, VulkanError, created_device, created_instance
from windtunnel.core.errors import DeviceOutOfMemory, InvalidArgument
from windtunnel.runtime.interface import Dims

_SLICE_NS = 1_000_000_000
"""Of a wait: the host can be interrupted between two."""
_STAMPS = 256
"""Time stamps of a pool."""
_IN_FLIGHT = 1024
"""Command buffers under way, at most: who gives more work waits."""
_CHUNK = 1 << 26
"""Bytes that are staged at once."""
_LEAST_STAGE = 1 << 16
_ENTRY = b"main"
_WHOLE = 2**64 - 1
"""VK_WHOLE_SIZE, which the package has as -1."""


@dataclass(eq=False)
class Memory:
    """A buffer. ``seen``: its bytes as the host has them; None where the host does not see it."""

    device: Device
    size: int
    buffer: Any
    memory: Any
    seen: np.ndarray | None


@dataclass(eq=False)
class Stamp:
    """A place for a time stamp, used again when nobody holds it."""

    device: Device
    pool: Any
    at: int

    def __del__(self) -> None:
        self.device.stamps.append((self.pool, self.at))


@dataclass(eq=False)
class Mark:
    """A point in the queue's work: what the semaphore then counts."""

    value: int
    stamp: Stamp | None = None
    began: Stamp | None = None
    """Of a timed launch: where it began; ``stamp`` is then where it ended."""


@dataclass(eq=False)
class Queue:
    """A stream's part of the one queue: what it was given last."""

    value: int = 0


@dataclass(frozen=True)
class Kernel:
    """A module, and how it is called: ``numbers`` is the layout of its push constants. Of no device in particular."""

    name: str
    module: bytes
    arrays: Sequence[str]
    numbers: np.dtype[Any]


@dataclass(eq=False)
class _Loaded:
    """A kernel on a device."""

    module: Any
    sets: Any
    layout: Any
    pipelines: dict[Dims, Any] = field(default_factory=dict)
    free: list[_Bound] = field(default_factory=list)
    pools: list[Any] = field(default_factory=list)
    left: int = 0
    """Sets that the last pool still has."""


@dataclass(eq=False)
class _Bound:
    """A descriptor set, and what it was last bound to."""

    native: Any
    writes: Any
    infos: Any
    memories: tuple[Memory, ...] = ()
    """As they were bound. Not their buffers' handles: a buffer made later may have that of one that is gone, and a set
    that is not written again then holds what was freed."""


class Device:
    """See the module. ``staged``: buffers are in memory that the host does not see; None: if the device is a card."""

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
        """(buffer, memory) of each piece that was not freed, by the buffer's handle."""
        self._kernels: dict[int, tuple[Kernel, _Loaded]] = {}
        self._finalizer = weakref.finalize(self, _undone, self._first, self._undo)
        try:
            self._open()
        except BaseException:
            self._finalizer()
            raise

    def _open(self) -> None:
        api, physical = self.api, self.physical
        instance = created_instance(api)
        if instance is None:
            raise VulkanError("vkCreateInstance", -9)
        self._undo.append(lambda: api("vkDestroyInstance", instance, api.null))
        handle = api.listed("vkEnumeratePhysicalDevices", "VkPhysicalDevice", instance)[physical.number]
        self._types = api.new("VkPhysicalDeviceMemoryProperties")
        api("vkGetPhysicalDeviceMemoryProperties", handle, self._types)
        self.native = native = created_device(api, handle, physical)
        self._undo.append(lambda: api("vkDestroyDevice", native, api.null))
        held = self._held
        self._undo.append(lambda: _all_freed(api, native, held))
        queue = api.ffi.new("VkQueue *")
        api("vkGetDeviceQueue", native, physical.family, 0, queue)
        self._queue = queue[0]
        flags = api.vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        info = api.new("VkCommandPoolCreateInfo", flags=flags, queueFamilyIndex=physical.family)
        self._pool = self._kept("vkCreateCommandPool", "VkCommandPool", info, "vkDestroyCommandPool")
        kind = api.new("VkSemaphoreTypeCreateInfo", semaphoreType=api.vk.VK_SEMAPHORE_TYPE_TIMELINE)
        kind.initialValue = self.submitted
        info = api.new("VkSemaphoreCreateInfo", pNext=kind)
        self._semaphore = self._kept("vkCreateSemaphore", "VkSemaphore", info, "vkDestroySemaphore")
        self._make_structs()
        self._first.append(lambda: _ended(api, native))

    def _make_structs(self) -> None:
        """What every call takes, made once."""
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

    def _kept(self, create: str, kind: str, info: Any, destroy: str) -> Any:
        """An object of the device that lives as long as the device."""
        api, native = self.api, self.native
        made = api.made(create, kind, native, info, api.null)
        self._undo.append(lambda: api(destroy, native, made, api.null))
        return made

    def close(self) -> None:
        """Give all back, when the work has ended."""
        self._finalizer()

    # Memory.

    def allocate(self, size: int, *, seen: bool | None = None) -> Memory:
        """``size`` bytes. ``seen``: by the host, or not; None as the device's other buffers."""
        api, vk = self.api, self.api.vk
        if size > self.physical.largest_bytes:
            problem = f"{size:,} bytes at once, of at most {self.physical.largest_bytes:,}"
            raise RefusedError(problem, DeviceOutOfMemory)
        usage = vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
        info = api.new(
            "VkBufferCreateInfo", size=-(-size // 4) * 4, usage=usage | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
            sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE,
        )  # fmt: skip
        buffer = api.made("vkCreateBuffer", "VkBuffer", self.native, info, api.null)
        memory = api.null
        try:
            needs = api.new("VkMemoryRequirements")
            api("vkGetBufferMemoryRequirements", self.native, buffer, needs)
            seen = not self.staged if seen is None else seen
            kind, mapped = self._memory_type(needs.memoryTypeBits, seen)
            info = api.new("VkMemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=kind)
            memory = api.made("vkAllocateMemory", "VkDeviceMemory", self.native, info, api.null)
            api("vkBindBufferMemory", self.native, buffer, memory, 0)
            view = self._mapped(memory, size) if mapped else None
        except BaseException:
            _freed(api, self.native, buffer, memory)
            raise
        found = Memory(self, size, buffer, memory, view)
        self._held[self._number(buffer)] = buffer, memory
        return found

    def _memory_type(self, able: int, seen: bool) -> tuple[int, bool]:
        """(which type of memory, whether it is mapped): the device's own; what the host sees, where that is wanted."""
        vk = self.api.vk
        own = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        host = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        asked = [own | host | cached, own | host, host | cached, host] if seen else [own, 0]
        for wanted in asked:
            for at in range(self._types.memoryTypeCount):
                if able >> at & 1 and self._types.memoryTypes[at].propertyFlags & wanted == wanted:
                    return at, seen
        raise VulkanError("vkAllocateMemory", -2, "no type of memory is both the buffer's and the host's")

    def _mapped(self, memory: Any, size: int) -> np.ndarray:
        place = self.api.ffi.new("void **")
        self.api("vkMapMemory", self.native, memory, 0, _WHOLE, 0, place)
        return np.frombuffer(self.api.ffi.buffer(place[0], size), np.uint8)

    def free(self, memory: Memory) -> None:
        """Give it back; no work uses it any more."""
        if self._held.pop(self._number(memory.buffer), None) is not None:
            _freed(self.api, self.native, memory.buffer, memory.memory)
            memory.seen = None

    def _number(self, buffer: Any) -> int:
        return int(self.api.ffi.cast("uintptr_t", buffer))

    def write(self, memory: Memory, data: np.ndarray) -> None:
        """Bytes of the host's to a buffer; they may be changed when this returns."""
        if memory.seen is not None:
            self.wait(self.submitted)
            memory.seen[: data.size] = data
            return
        for at in range(0, data.size, _CHUNK):
            part = data[at : at + _CHUNK]
            stage = self._stage(part.size)
            assert stage.seen is not None  # noqa: S101  that is what it was asked for
            stage.seen[: part.size] = part
            self.copy(memory, at, stage, 0, part.size, lambda stage=stage: self._stages.append(stage))  # type: ignore[misc]

    def read(self, data: np.ndarray, memory: Memory) -> None:
        """Bytes of a buffer to the host, which waits for them."""
        if memory.seen is not None:
            self.wait(self.submitted)
            data[:] = memory.seen[: data.size]
            return
        for at in range(0, data.size, _CHUNK):
            part = data[at : at + _CHUNK]
            stage = self._stage(part.size)
            self.wait(self.copy(stage, 0, memory, at, part.size))
            assert stage.seen is not None  # noqa: S101  that is what it was asked for
            part[:] = stage.seen[: part.size]
            self._stages.append(stage)

    def _stage(self, size: int) -> Memory:
        """A buffer that the host sees, of at least so many bytes; it goes back to the others when it was used."""
        self._reap()
        if self._flight and not self._stages:
            self.wait(self._flight[0][0])
        fits = [one for one in self._stages if one.size >= size]
        if fits:
            found = min(fits, key=lambda one: one.size)
            self._stages.remove(found)
            return found
        return self.allocate(max(1 << (size - 1).bit_length(), _LEAST_STAGE), seen=True)

    def copy(
        self, to: Memory, to_at: int, memory: Memory, at: int, size: int, *after: Callable[[], object]
    ) -> int:  # fmt: skip
        """From one buffer to another; ``after``: called when it is done, the next time anybody looks."""
        self._region.srcOffset, self._region.dstOffset, self._region.size = at, to_at, size
        commands = self._recording()
        self.api("vkCmdCopyBuffer", commands, memory.buffer, to.buffer, 1, self._region)
        return self._submit(commands, after)

    # Work.

    def _recording(self) -> Any:
        """A command buffer that is being recorded."""
        self._reap()
        if len(self._flight) >= _IN_FLIGHT:
            self.wait(self._flight[0][0])
        if not self._commands:
            level = self.api.vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY
            info = self.api.new(
                "VkCommandBufferAllocateInfo", commandPool=self._pool, level=level, commandBufferCount=1
            )
            self._commands.append(self.api.made("vkAllocateCommandBuffers", "VkCommandBuffer", self.native, info))
        commands = self._commands.pop()
        self.api("vkBeginCommandBuffer", commands, self._begin)
        return commands

    def _submit(self, commands: Any, after: Sequence[Callable[[], object]] = ()) -> int:
        """End and submit; what the semaphore counts when it is done."""
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
        """Whether that much is done."""
        if value > self.done:
            self.api("vkGetSemaphoreCounterValue", self.native, self._semaphore, self._count)
            self.done = int(self._count[0])
        return value <= self.done

    def wait(self, value: int) -> None:
        """The host waits until that much is done."""
        if not self.reached(value):
            self._waited[0] = value
            while self.api("vkWaitSemaphores", self.native, self._wait_info, _SLICE_NS) != 0:
                pass
            self.done = max(self.done, value)
        self._reap()

    def _reap(self) -> None:
        """Take back what the work that is done has used."""
        flight = self._flight
        while flight and self.reached(flight[0][0]):
            _, commands, after = flight.popleft()
            self._commands.append(commands)
            for one in after:
                one()

    # Time.

    def mark(self) -> Mark:
        """A point in the work, with the device's time."""
        if not self.physical.stamp_bits:
            return Mark(self.submitted)
        commands = self._recording()
        stamp = self._stamped(commands)
        return Mark(self._submit(commands), stamp)

    def _stamped(self, commands: Any) -> Stamp:
        """The device's time when all before it in the commands is done."""
        if not self.stamps:
            kind = self.api.vk.VK_QUERY_TYPE_TIMESTAMP
            info = self.api.new("VkQueryPoolCreateInfo", queryType=kind, queryCount=_STAMPS)
            pool = self._kept("vkCreateQueryPool", "VkQueryPool", info, "vkDestroyQueryPool")
            self.stamps += [(pool, at) for at in range(_STAMPS)]
        stamp = Stamp(self, *self.stamps.pop())
        self.api("vkCmdResetQueryPool", commands, stamp.pool, stamp.at, 1)
        bottom = self.api.vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        self.api("vkCmdWriteTimestamp", commands, bottom, stamp.pool, stamp.at)
        return stamp

    def elapsed_s(self, mark: Mark, since: Mark) -> float:
        """Between two points that have been reached; the counter may have begun anew between them, once."""
        if mark.stamp is None or since.stamp is None:
            raise RefusedError(f"{self.physical.name}'s queues of computing have no time stamps", InvalidArgument)
        ticks = self._ticks(mark.stamp) - self._ticks(since.stamp)
        around = 1 << self.physical.stamp_bits
        ticks = (ticks + around // 2) % around - around // 2
        return ticks * self.physical.tick_s

    def _ticks(self, stamp: Stamp) -> int:
        if stamp.device is not self:
            raise RefusedError("the event was recorded before a reset", InvalidArgument)
        found = self.api.ffi.new("uint64_t *")
        flags = self.api.vk.VK_QUERY_RESULT_64_BIT | self.api.vk.VK_QUERY_RESULT_WAIT_BIT
        self.api("vkGetQueryPoolResults", self.native, stamp.pool, stamp.at, 1, 8, found, 8, flags)
        return int(found[0]) & ((1 << self.physical.stamp_bits) - 1)

    # Kernels.

    def load(self, kernel: Kernel) -> None:
        """Give the driver a kernel's module, if it has not got it."""
        self._loaded(kernel)

    def _loaded(self, kernel: Kernel) -> _Loaded:
        found = self._kernels.get(id(kernel))
        if found is not None:
            return found[1]
        api, vk = self.api, self.api.vk
        words = api.ffi.from_buffer("uint32_t[]", kernel.module)
        info = api.new("VkShaderModuleCreateInfo", codeSize=len(kernel.module), pCode=words)
        module = self._kept("vkCreateShaderModule", "VkShaderModule", info, "vkDestroyShaderModule")
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
        sets = self._kept("vkCreateDescriptorSetLayout", "VkDescriptorSetLayout", info, "vkDestroyDescriptorSetLayout")
        pushed = api.new("VkPushConstantRange", stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT, size=kernel.numbers.itemsize)
        info = api.new(
            "VkPipelineLayoutCreateInfo", setLayoutCount=1, pSetLayouts=api.array("VkDescriptorSetLayout", [sets]),
            pushConstantRangeCount=int(kernel.numbers.itemsize > 0), pPushConstantRanges=pushed,
        )  # fmt: skip
        layout = self._kept("vkCreatePipelineLayout", "VkPipelineLayout", info, "vkDestroyPipelineLayout")
        made = _Loaded(module, sets, layout)
        self._kernels[id(kernel)] = (kernel, made)
        return made

    def _pipeline(self, loaded: _Loaded, block: Dims) -> Any:
        """For a size of blocks, which are the module's specialisation constants 0, 1 and 2."""
        found = loaded.pipelines.get(block)
        if found is not None:
            return found
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
        made = api.ffi.new("VkPipeline *")
        native = self.native
        api("vkCreateComputePipelines", native, api.null, 1, info, api.null, made)
        found = loaded.pipelines[block] = made[0]
        self._undo.append(lambda: api("vkDestroyPipeline", native, found, api.null))
        return found

    def _bound(self, loaded: _Loaded, memories: tuple[Memory, ...]) -> _Bound:
        """A descriptor set of these buffers; one that had them last, where there is one."""
        free = loaded.free
        at = next((at for at in range(len(free) - 1, -1, -1) if free[at].memories == memories), len(free) - 1)
        found = free.pop(at) if free else self._new_set(loaded, len(memories))
        if found.memories != memories:
            for at, memory in enumerate(memories):
                found.infos[at].buffer = memory.buffer
            self.api("vkUpdateDescriptorSets", self.native, len(memories), found.writes, 0, self.api.null)
            found.memories = memories
        return found

    def _new_set(self, loaded: _Loaded, count: int) -> _Bound:
        api, vk = self.api, self.api.vk
        kind = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        if not loaded.left:
            loaded.left = sets = 4 << 2 * min(len(loaded.pools), 4)
            size = api.new("VkDescriptorPoolSize", type=kind, descriptorCount=count * sets)
            info = api.new("VkDescriptorPoolCreateInfo", maxSets=sets, poolSizeCount=1, pPoolSizes=size)
            loaded.pools.append(
                self._kept("vkCreateDescriptorPool", "VkDescriptorPool", info, "vkDestroyDescriptorPool")
            )
        info = api.new(
            "VkDescriptorSetAllocateInfo", descriptorPool=loaded.pools[-1], descriptorSetCount=1,
            pSetLayouts=api.array("VkDescriptorSetLayout", [loaded.sets]),
        )  # fmt: skip
        native = api.made("vkAllocateDescriptorSets", "VkDescriptorSet", self.native, info)
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
        """From where a timed launch began to where it ended, both reached."""
        return None if mark.began is None else self.elapsed_s(mark, Mark(0, mark.began))

    def launch(
        self, kernel: Kernel, grid: Dims, block: Dims, memories: Sequence[Memory], numbers: bytes, timed: bool = False
    ) -> Mark:
        """A launch's blocks, and the point after them."""
        for name, memory in zip(kernel.arrays, memories, strict=True):
            if memory.size > self.physical.bound_bytes:
                raise RefusedError(
                    f"'{name}' has {memory.size:,} bytes, and a kernel takes arrays of at most "
                    f"{self.physical.bound_bytes:,} here (maxStorageBufferRange)",
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
        began = self._stamped(commands)
        api("vkCmdDispatch", commands, *grid)
        ended = self._stamped(commands)
        return Mark(self._submit(commands, after), ended, began)


def _freed(api: Api, native: Any, buffer: Any, memory: Any) -> None:
    api("vkDestroyBuffer", native, buffer, api.null)
    api("vkFreeMemory", native, memory, api.null)


def _all_freed(api: Api, native: Any, held: dict[int, tuple[Any, Any]]) -> None:
    while held:
        _freed(api, native, *held.popitem()[1])


def _ended(api: Api, native: Any) -> None:
    """All work that a device was given; that of a lost one has ended."""
    with suppress(VulkanError):
        api("vkDeviceWaitIdle", native)


def _undone(first: list[Callable[[], object]], undo: list[Callable[[], object]]) -> None:
    """Do what comes first, then destroy what was created, the last first."""
    for one in first:
        one()
    while undo:
        undo.pop()()
