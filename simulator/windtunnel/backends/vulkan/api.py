"""Calls of Vulkan through the `vulkan` package's bindings, with checked results, and the description of devices.

The package's own wrappers raise KeyError for results that they do not list, and do not keep nested structs alive. Only
its declarations (``ffi``), its loader (``lib``) and its constants are used.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from windtunnel.core.errors import DeviceError, DeviceHang, DeviceLost, DeviceOutOfMemory, InvalidArgument

VERSION = (1, 2)
"""Minimum version of Vulkan: it has timeline semaphores, and one struct with the features of number types."""
RESULTS: Mapping[int, tuple[str, type[DeviceError] | None]] = {
    1: ("VK_NOT_READY", InvalidArgument),
    2: ("VK_TIMEOUT", DeviceHang),
    -1: ("VK_ERROR_OUT_OF_HOST_MEMORY", DeviceOutOfMemory),
    -2: ("VK_ERROR_OUT_OF_DEVICE_MEMORY", DeviceOutOfMemory),
    -3: ("VK_ERROR_INITIALIZATION_FAILED", None),
    -4: ("VK_ERROR_DEVICE_LOST", DeviceLost),
    -5: ("VK_ERROR_MEMORY_MAP_FAILED", DeviceOutOfMemory),
    -6: ("VK_ERROR_LAYER_NOT_PRESENT", None),
    -7: ("VK_ERROR_EXTENSION_NOT_PRESENT", None),
    -8: ("VK_ERROR_FEATURE_NOT_PRESENT", None),
    -9: ("VK_ERROR_INCOMPATIBLE_DRIVER", None),
    -10: ("VK_ERROR_TOO_MANY_OBJECTS", DeviceOutOfMemory),
    -12: ("VK_ERROR_FRAGMENTED_POOL", DeviceOutOfMemory),
    -13: ("VK_ERROR_UNKNOWN", None),
    -1000012000: ("VK_ERROR_INVALID_SHADER_NV", None),
    -1000069000: ("VK_ERROR_OUT_OF_POOL_MEMORY", DeviceOutOfMemory),
    -1000161000: ("VK_ERROR_FRAGMENTATION", DeviceOutOfMemory),
}
"""Results of vulkan_core.h and their kinds of device error. None: the failed operation decides."""
CONTROLS = {"denormals": (4464, 4459), "special": (4466, 4461), "nearest": (4467, 4462)}
"""Properties of floating-point arithmetic: (capability, execution mode) of DenormPreserve, SignedZeroInfNanPreserve
and RoundingModeRTE (SPV_KHR_float_controls)."""
_VENDORS = {0x1002: "AMD", 0x1010: "Imagination", 0x106B: "Apple", 0x10DE: "NVIDIA", 0x13B5: "Arm", 0x5143: "Qualcomm",
            0x8086: "Intel", 0x10005: "Mesa"}  # fmt: skip
_CPU, _DISCRETE = 4, 2
CORE = ("shaderInt64", "shaderFloat64", "shaderInt16")
CORE_11 = ("storageBuffer16BitAccess",)
CORE_12 = (
    "storageBuffer8BitAccess", "shaderInt8", "shaderFloat16", "shaderBufferInt64Atomics", "shaderSharedInt64Atomics",
    "shaderSubgroupExtendedTypes", "timelineSemaphore",
)  # fmt: skip
_REQUIRED_FEATURES: Mapping[int, tuple[str, str]] = {
    9: ("shaderFloat16", "16-bit floats"), 10: ("shaderFloat64", "64-bit floats"),
    11: ("shaderInt64", "64-bit integers"), 12: ("shaderBufferInt64Atomics", "64-bit atomic operations"),
    22: ("shaderInt16", "16-bit integers"), 39: ("shaderInt8", "8-bit integers"),
    4433: ("storageBuffer16BitAccess", "16-bit numbers in buffers"),
    4448: ("storageBuffer8BitAccess", "8-bit numbers in buffers"),
}  # fmt: skip
_SUBGROUPS: Mapping[int, int] = {61: 1, 62: 2, 63: 4, 64: 8, 65: 16, 66: 32}
"""SPIR-V capability of subgroup operations, and the bit in VkSubgroupFeatureFlagBits."""


_DESTROYED = (
    "Buffer", "CommandPool", "DescriptorPool", "DescriptorSetLayout", "Device", "Instance", "Pipeline",
    "PipelineLayout", "QueryPool", "Semaphore", "ShaderModule",
)  # fmt: skip
_IN_FINALIZERS = ("vkDeviceWaitIdle", "vkFreeMemory", *(f"vkDestroy{kind}" for kind in _DESTROYED))


class VulkanError(Exception):
    """A call returned the error ``code``."""

    def __init__(self, call: str, code: int, detail: str = "") -> None:
        self.code = code
        name = RESULTS.get(code, (f"VkResult {code}", None))[0]
        super().__init__(f"{call} failed: {name} ({code})" + (f": {detail}" if detail else ""))


class RefusedError(Exception):
    """The device's limits or features do not permit an operation. ``kind`` is None if the operation decides."""

    def __init__(self, message: str, kind: type[DeviceError] | None = None) -> None:
        self.kind = kind
        super().__init__(message)


@cache
def _runtime_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="windtunnel-")  # deleted when the process ends


def quiet() -> None:
    """Set a folder for run-time files, without which some drivers write to stderr."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        os.environ["XDG_RUNTIME_DIR"] = _runtime_folder().name


class Api:
    """The loaded bindings. ``api("vkDeviceWaitIdle", device)`` calls a function and checks its result."""

    def __init__(self) -> None:
        import vulkan

        self.ffi, self.lib, self.vk = vulkan.ffi, vulkan.lib, vulkan
        self.null = self.ffi.NULL
        self._held: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
        self._calls: dict[str, Callable[..., int | None]] = {}
        # Finalizers use these, and the garbage collector may run one while cffi builds another function for the first
        # time. cffi 2.1 aborts the process if it is entered again there (realize_c_type.c), so they are built now.
        for name in _IN_FINALIZERS:
            self._load(name)

    def __call__(self, name: str, *arguments: Any) -> int:
        """Call a function of Vulkan and return its result. Raises VulkanError for an error."""
        code = (self._calls.get(name) or self._load(name))(*arguments)
        if code is not None and code < 0:
            raise VulkanError(name, code)
        return code or 0

    def _load(self, name: str) -> Callable[..., int | None]:
        return self._calls.setdefault(name, getattr(self.lib, name))

    def new(self, kind: str, **fields: Any) -> Any:
        """Return a pointer to a new struct with its sType. It keeps alive what its fields point to."""
        struct = self.ffi.new(f"{kind} *")
        if any(name == "sType" for name, _ in self.ffi.typeof(kind).fields):
            struct.sType = getattr(self.vk, _type_of(kind))
        for name, value in fields.items():
            setattr(struct, name, value)
        self._held[struct] = [value for value in fields.values() if isinstance(value, self.ffi.CData)]
        return struct

    def array(self, kind: str, values: Sequence[Any]) -> Any:
        """Return an array of values; pointers to structs are dereferenced."""
        array = self.ffi.new(f"{kind}[]", max(len(values), 1))
        for at, value in enumerate(values):
            struct = isinstance(value, self.ffi.CData) and self.ffi.typeof(value) == self.ffi.typeof(f"{kind} *")
            array[at] = value[0] if struct else value
        self._held[array] = list(values)
        return array

    def create(self, name: str, kind: str, device: Any, info: Any, *rest: Any) -> Any:
        """Return the object that a vkCreate or vkAllocate function creates."""
        handle = self.ffi.new(f"{kind} *")
        self(name, device, info, *rest, handle)
        return handle[0]

    def listed(self, name: str, kind: str, *first: Any) -> list[Any]:
        """Return the list of a function that is called twice: for the count and for the elements."""
        count = self.ffi.new("uint32_t *")
        self(name, *first, count, self.null)
        elements = self.ffi.new(f"{kind}[]", max(count[0], 1))
        self(name, *first, count, elements)
        if self.ffi.typeof(kind).kind == "struct":
            # Copies, because an element of an array is a reference into it.
            return [self.ffi.new(f"{kind} *", elements[at]) for at in range(count[0])]
        return [elements[at] for at in range(count[0])]


@cache
def _type_of(kind: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", kind.removeprefix("Vk")).upper()
    words = re.sub(r"VULKAN_(\d)(\d)", r"VULKAN_\1_\2", words)
    return f"VK_STRUCTURE_TYPE_{words}"


@cache
def api() -> Api | None:
    """Return the bindings; None without Vulkan's loader. Raises ImportError without the bindings."""
    quiet()
    try:
        return Api()
    except OSError:  # the package could not load libvulkan.so.1
        return None


def create_instance(vulkan: Api) -> Any:
    """Create an instance without layers. Returns None if no driver is installed."""
    version = VERSION[0] << 22 | VERSION[1] << 12
    application = vulkan.new("VkApplicationInfo", apiVersion=version)
    info = vulkan.new("VkInstanceCreateInfo", pApplicationInfo=application)
    try:
        return vulkan.create("vkCreateInstance", "VkInstance", info, vulkan.null)
    except VulkanError as error:
        if error.code == -9:
            return None
        raise


@contextmanager
def instance(vulkan: Api) -> Iterator[Any]:
    """Provide an instance, and destroy it at the end."""
    handle = create_instance(vulkan)
    try:
        yield handle
    finally:
        if handle is not None:
            vulkan("vkDestroyInstance", handle, vulkan.null)


@dataclass(frozen=True)
class Physical:
    """A device as Vulkan describes it."""

    number: int
    """Index in the loader's order."""
    name: str
    software: bool
    gpu: bool
    discrete: bool
    vendor: str
    driver: str
    family: int
    """The queue family that is used: it computes, and has timestamps if any family has."""
    stamp_bits: int
    tick_s: float
    heap_bytes: int
    """Size of the largest device-local heap."""
    largest_bytes: int
    """Largest allocation."""
    bound_bytes: int
    """Largest array that a kernel takes."""
    push_bytes: int
    threads: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared_bytes: int
    buffers: int
    """Maximum number of arrays that a kernel takes."""
    subgroup: int
    subgroup_operations: int
    units: int
    features: frozenset[str]
    controls: tuple[tuple[str, int], ...]
    """Supported entries of `CONTROLS`, with the width of the floats."""
    uuid: bytes
    """The device's UUID (16 bytes), which NVML has too."""

    def missing_feature(self, capabilities: Sequence[int] | frozenset[int]) -> str | None:
        """Return in words what a module requires and the device does not support; None if there is nothing."""
        for number in sorted(capabilities):
            if number in _REQUIRED_FEATURES and _REQUIRED_FEATURES[number][0] not in self.features:
                feature, description = _REQUIRED_FEATURES[number]
                return f"{self.name} has no {description} ({feature})"
            if number in _SUBGROUPS and not self.subgroup_operations & _SUBGROUPS[number]:
                return f"{self.name} does not support the warp operations that the kernel uses"
        return None


def physical_devices(vulkan: Api, instance_handle: Any) -> list[Physical]:
    """Return the devices that this back end can use, hardware first, then in the loader's order."""
    handles = vulkan.listed("vkEnumeratePhysicalDevices", "VkPhysicalDevice", instance_handle)
    described = (_described(vulkan, number, handle) for number, handle in enumerate(handles))
    return sorted((device for device in described if device is not None), key=lambda device: device.software)


def _described(vulkan: Api, number: int, handle: Any) -> Physical | None:
    """Describe a device. None if it lacks the version, compute queues or timeline semaphores."""
    plain = vulkan.new("VkPhysicalDeviceProperties")
    vulkan("vkGetPhysicalDeviceProperties", handle, plain)
    if (plain.apiVersion >> 22, plain.apiVersion >> 12 & 0x3FF) < VERSION:
        return None
    features = features_of(vulkan, handle)
    families = vulkan.listed("vkGetPhysicalDeviceQueueFamilyProperties", "VkQueueFamilyProperties", handle)
    able = [at for at, family in enumerate(families) if family.queueFlags & vulkan.vk.VK_QUEUE_COMPUTE_BIT]
    if not able or "timelineSemaphore" not in features:
        return None
    family = max(able, key=lambda at: families[at].timestampValidBits)
    later = vulkan.new("VkPhysicalDeviceVulkan12Properties")
    middle = vulkan.new("VkPhysicalDeviceVulkan11Properties", pNext=later)
    extensions = {
        vulkan.ffi.string(extension.extensionName).decode()
        for extension in vulkan.listed(
            "vkEnumerateDeviceExtensionProperties", "VkExtensionProperties", handle, vulkan.null
        )
    }  # fmt: skip
    units = vulkan.new("VkPhysicalDeviceShaderSMBuiltinsPropertiesNV")
    if "VK_NV_shader_sm_builtins" in extensions:
        later.pNext = units
    whole = vulkan.new("VkPhysicalDeviceProperties2", pNext=middle)
    vulkan("vkGetPhysicalDeviceProperties2", handle, whole)
    memory = vulkan.new("VkPhysicalDeviceMemoryProperties")
    vulkan("vkGetPhysicalDeviceMemoryProperties", handle, memory)
    heaps = [memory.memoryHeaps[at] for at in range(memory.memoryHeapCount)]
    limits, kind = plain.limits, plain.deviceType

    def text_of(text: Any) -> str:
        return str(vulkan.ffi.string(text).decode(errors="replace")).strip()

    def three(values: Any) -> tuple[int, int, int]:
        return int(values[0]), int(values[1]), int(values[2])

    return Physical(
        number=number,
        name=text_of(plain.deviceName),
        software=kind == _CPU,
        gpu=kind != _CPU,
        discrete=kind == _DISCRETE,
        vendor=_VENDORS.get(plain.vendorID, f"vendor {plain.vendorID:#x}"),
        driver=f"{text_of(later.driverName)} {text_of(later.driverInfo)}".strip(),
        family=family,
        stamp_bits=families[family].timestampValidBits,
        tick_s=limits.timestampPeriod * 1e-9,
        heap_bytes=max(int(heap.size) for heap in heaps if heap.flags & vulkan.vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT),
        largest_bytes=int(middle.maxMemoryAllocationSize),
        bound_bytes=int(limits.maxStorageBufferRange),
        push_bytes=int(limits.maxPushConstantsSize),
        threads=int(limits.maxComputeWorkGroupInvocations),
        block=three(limits.maxComputeWorkGroupSize),
        grid=three(limits.maxComputeWorkGroupCount),
        shared_bytes=int(limits.maxComputeSharedMemorySize),
        buffers=int(limits.maxPerStageDescriptorStorageBuffers),
        subgroup=int(middle.subgroupSize),
        subgroup_operations=int(middle.subgroupSupportedOperations) if middle.subgroupSupportedStages & 0x20 else 0,
        units=int(units.shaderSMCount) or (os.cpu_count() or 1 if kind == _CPU else 1),
        features=features,
        controls=_controls(later),
        uuid=bytes(middle.deviceUUID),
    )


def _controls(properties: Any) -> tuple[tuple[str, int], ...]:
    """Return the properties of floating-point arithmetic that a device supports for 32 and 64 bits."""
    names = {"denormals": "DenormPreserve", "special": "SignedZeroInfNanPreserve", "nearest": "RoundingModeRTE"}
    independent = {
        "denormals": properties.denormBehaviorIndependence == 2,
        "nearest": properties.roundingModeIndependence == 2,
    }
    controls: list[tuple[str, int]] = []
    for control in CONTROLS:
        able = [bits for bits in (32, 64) if getattr(properties, f"shader{names[control]}Float{bits}")]
        if len(able) == 2 or not independent.get(control, False):  # otherwise only both widths together
            controls += [(control, bits) for bits in able]
    return tuple(controls)


def features_of(vulkan: Api, handle: Any) -> frozenset[str]:
    """Return the features of a device that kernels may require."""
    later = vulkan.new("VkPhysicalDeviceVulkan12Features")
    middle = vulkan.new("VkPhysicalDeviceVulkan11Features", pNext=later)
    whole = vulkan.new("VkPhysicalDeviceFeatures2", pNext=middle)
    vulkan("vkGetPhysicalDeviceFeatures2", handle, whole)
    rows = ((whole.features, CORE), (middle, CORE_11), (later, CORE_12))
    return frozenset(name for struct, names in rows for name in names if getattr(struct, name))


def create_device(vulkan: Api, handle: Any, physical: Physical) -> Any:
    """Create a device with one queue and all features that kernels may require."""

    def on(names: Sequence[str]) -> dict[str, int]:
        return {name: 1 for name in names if name in physical.features}

    later = vulkan.new("VkPhysicalDeviceVulkan12Features", **on(CORE_12))
    middle = vulkan.new("VkPhysicalDeviceVulkan11Features", pNext=later, **on(CORE_11))
    whole = vulkan.new("VkPhysicalDeviceFeatures2", pNext=middle)
    for name in on(CORE):
        setattr(whole.features, name, 1)
    priority = vulkan.ffi.new("float[]", [1.0])
    queue = vulkan.new(
        "VkDeviceQueueCreateInfo", queueFamilyIndex=physical.family, queueCount=1, pQueuePriorities=priority
    )
    info = vulkan.new("VkDeviceCreateInfo", pNext=whole, queueCreateInfoCount=1, pQueueCreateInfos=queue)
    return vulkan.create("vkCreateDevice", "VkDevice", handle, info, vulkan.null)
