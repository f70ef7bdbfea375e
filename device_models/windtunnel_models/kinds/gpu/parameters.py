"""What a GPU is described by: its parameters, and the few numbers that one fit gives all of them.

Each fitted number names the measurements it comes from and ranges over what each device's own fit gave.
"""

from __future__ import annotations

from windtunnel.core.device import Parameter
from windtunnel.core.provenance import Provenance, Sourced, assumed
from windtunnel_models.kinds._shared import API_KEYS, COMMON, DTYPE_KEYS

_FIT = "fitted, one value for all devices, to "
GEMM_DATA = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), GEMM of A100, H100, L40S, B200 and Arc Pro B60"
ATTENTION_DATA = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), attention of A100 and H100"
MEMBOUND_DATA = "ProjectPhysX/FluidX3D@8986874, lattice-Boltzmann updates of 87 GPUs against their specified bandwidth"
EAGER_DATA = "sitar-lab/NeuSight@6945927 (MIT), eager PyTorch on six GPUs"
COLLECTIVE_DATA = "microsoft/vidur@7d47513 (MIT), collectives on A100 DGX"


def fitted(value: float, low: float, high: float, data: str) -> Sourced:
    """A number fitted to published measurements (SI), with the range of the devices' own fits."""
    return Sourced(value, Provenance.PUBLISHED, _FIT + data, low, high)


_STREAM_FIT = "fitted by benchmarks/accuracy/membound.py to "
STENCIL_DATA = "ProjectPhysX/FluidX3D@8986874, lattice-Boltzmann updates (153 B each) over specified bandwidth"


def streamed(value: float, low: float, high: float, data: str = EAGER_DATA) -> Sourced:
    """A number of streaming kernels (SI) with the range over fits that each leave one device out."""
    return Sourced(value, Provenance.PUBLISHED, _STREAM_FIT + data, low, high)


def launched(value: float, low: float, high: float, what: str) -> Sourced:
    """The median (SI) of published launches or copies, with their range."""
    source = f"krrishnarraj/clpeak before a89d2ae (Apache-2.0), median of {what}; benchmarks/accuracy/launches.py"
    return Sourced(value, Provenance.PUBLISHED, source, low, high)


def collective(value: float, low: float, high: float) -> Sourced:
    """A number of collectives (SI) with the range over fits that each leave one set of workers out."""
    return Sourced(
        value, Provenance.PUBLISHED, "fitted by benchmarks/accuracy/collectives.py to " + COLLECTIVE_DATA, low, high
    )


def step(value: float, low: float, high: float) -> Sourced:
    """A protocol's latency (s) that the measurements leave open."""
    return assumed(value, low, high, "about what NCCL reckons with when it chooses a protocol; not moved by fits")


def shared_out(value: float, low: float, high: float, why: str) -> Sourced:
    """A power number where no device teaches one: round, and chosen with B200's fits in sight."""
    return assumed(value, low, high, why + "; no vendor publishes the split of power between units")


def counted(value: float, low: float, high: float, data: str) -> Sourced:
    """The median (1) of published measurements of a group of devices, with its range."""
    return Sourced(value, Provenance.PUBLISHED, "median of " + data, low, high)


PARAMETERS = (
    *COMMON,
    Parameter(
        "power_share",
        "1",
        "of (max - idle) power: awake, compute units occupied, 16-bit matrix peak, memory and link at full rate",
        keys=("base", "busy", "compute", "memory", "link"),
        defaults={
            "base": shared_out(0.15, 0.05, 0.25, "an open context and raised clocks"),
            "busy": shared_out(0.35, 0.2, 0.5, "clocks, caches and schedulers of a chip that works at all"),
            "compute": shared_out(1.4, 1.0, 2.0, "peaks are stated above what the limit lets a board hold"),
            "memory": shared_out(0.2, 0.05, 0.45, "a stream at full bandwidth draws two thirds of the limit"),
            "link": shared_out(0.1, 0.05, 0.15, "lanes of a link at full rate"),
        },
        taught=True,
    ),
    Parameter(
        "type_power",
        "1",
        "power of products at the peak of a type over that of 16-bit ones; of the vector units at theirs",
        keys=(*DTYPE_KEYS, "vector"),
        defaults={
            **{key: shared_out(1.0, 0.7, 1.4, "peaks of all types are set by one power budget") for key in DTYPE_KEYS},
            "vector": shared_out(0.5, 0.25, 1.0, "vector units alone reach less than the matrix units"),
        },
        taught=True,
    ),
    Parameter(
        "long_k_power",
        "1",
        "factor on the power of compute and memory of 16-bit products from k = 65,536 on; measured, not explained",
        default=shared_out(1.0, 0.1, 1.0, "no effect of the reduction's length"),
        taught=True,
    ),
    Parameter(
        "power_cap_share",
        "1",
        "of the limit at which a loop above it is held on average",
        default=shared_out(0.98, 0.95, 1.0, "the board's controller keeps a margin"),
        taught=True,
    ),
    Parameter(
        "throttle_exponent",
        "1",
        "a loop's time grows as demand over cap to this power; less than 1 as voltage falls with the clock",
        default=shared_out(0.3, 0.15, 0.5, "dynamic power goes as the clock to between 2 and 3"),
        taught=True,
    ),
    Parameter(
        "design_power_w",
        "W",
        "power that the silicon would need at its peak rates, to which shares refer; the limit unless a board is held "
        "far below or above that of its die's first one",
    ),
    Parameter("compute_units", "1", "streaming multiprocessors, compute units, Xe cores or GPU cores", required=True),
    Parameter("boost_clock_hz", "Hz", "clock of a short run", required=True),
    Parameter("matrix_flops_per_s", "FLOP/s", "dense peak of the matrix units", keys=DTYPE_KEYS),
    Parameter("vector_flops_per_s", "FLOP/s", "peak of the vector units", keys=DTYPE_KEYS, required=True),
    Parameter("memory_bandwidth_bytes_per_s", "B/s", "specified bandwidth of device memory", required=True),
    Parameter("memory_bytes", "B", "device memory that one program can use", required=True),
    Parameter("l2_bytes", "B", "last-level cache", required=True),
    Parameter(
        "shared_memory_bytes",
        "B",
        "memory that the blocks of one compute unit share",
        default=assumed(96 * 1024.0, 64 * 1024.0, 228 * 1024.0, "64 KiB on AMD, 64 to 228 KiB on NVIDIA by generation"),
    ),
    Parameter(
        "unit_threads",
        "1",
        "threads that one compute unit holds at once",
        default=assumed(1024.0, 1024.0, 2048.0, "1,024 to 2,048 on NVIDIA by generation; of others not stated here"),
    ),
    Parameter(
        "unit_blocks",
        "1",
        "blocks that one compute unit holds at once",
        default=assumed(16.0, 8.0, 32.0, "16 to 32 on NVIDIA by generation; of others not stated here"),
    ),
    Parameter(
        "unit_registers",
        "1",
        "32-bit registers that the blocks of one compute unit share",
        default=assumed(65536.0, 65536.0, 131072.0, "65,536 on NVIDIA; of others not stated here"),
    ),
    Parameter(
        "l2_bytes_per_clock",
        "B",
        "operands one compute unit gets from the last-level cache in a clock, those shared with neighbours included",
        default=fitted(70.0, 35.0, 167.0, GEMM_DATA),
    ),
    Parameter("host_link_bytes_per_s", "B/s", "nominal rate of the link to the host, one direction"),
    Parameter(
        "host_link_efficiency",
        "1",
        "pinned copy rate over the link's nominal rate",
        default=Sourced(
            0.85,
            Provenance.PUBLISHED,
            "krrishnarraj/clpeak@a89d2ae^ (Apache-2.0): 55.0 of 63.0 GB/s on MI300X; NVIDIA/nvbandwidth#42: 25.1 of "
            "31.5 GB/s on A100",
            0.65,
            0.92,
        ),
    ),
    Parameter("scale_up_bytes_per_s", "B/s", "link to other devices of the node, one direction, all lanes together"),
    Parameter(
        "scale_up_efficiency",
        "1",
        "attained over nominal rate of the link",
        keys=("all_reduce", "send_recv"),
        defaults={
            "all_reduce": collective(0.643, 0.55, 0.75),
            "send_recv": collective(1.0, 0.76, 1.0),
        },
    ),
    Parameter(
        "scale_out_bytes_per_s",
        "B/s",
        "one port of the network between nodes, one direction",
        default=assumed(
            12.5e9, 5e9, 50e9, "a fabric is the cluster's, not the GPU's; one 100 Gbit/s port, where 400 is common too"
        ),
    ),
    Parameter(
        "scale_out_efficiency",
        "1",
        "attained over nominal rate of a port",
        keys=("all_reduce", "send_recv"),
        defaults={
            "all_reduce": collective(0.57, 0.47, 0.9),
            "send_recv": collective(0.66, 0.6, 0.9),
        },
    ),
    Parameter(
        "scale_out_ports",
        "1",
        "ports that the rings of a node with four workers and more leave it by",
        default=collective(2.75, 2.0, 3.3),
    ),
    Parameter(
        "collective_launch_s",
        "s",
        "launch of a collective on all its workers, and waiting for the last of them",
        keys=("all_reduce", "send_recv"),
        defaults={
            "all_reduce": collective(37.5e-6, 18e-6, 50e-6),
            "send_recv": collective(9.6e-6, 8e-6, 14e-6),
        },
    ),
    Parameter(
        "collective_step_s",
        "s",
        "latency of one step of a collective by protocol, inside a node and between nodes (out)",
        keys=("ll", "ll128", "simple", "ll_out", "ll128_out", "simple_out"),
        defaults={
            "ll": step(1.0e-6, 0.6e-6, 1.5e-6),
            "ll128": collective(2.1e-6, 1.5e-6, 3e-6),
            "simple": step(4.0e-6, 3e-6, 8e-6),
            "ll_out": step(3.0e-6, 2e-6, 6e-6),
            "ll128_out": collective(22e-6, 6e-6, 36e-6),
            "simple_out": step(14e-6, 9e-6, 20e-6),
        },
    ),
    Parameter(
        "protocol_share",
        "1",
        "of the link's attained rate that is left to data beside flags and waiting",
        keys=("ll", "ll128"),
        defaults={
            "ll": collective(0.21, 0.16, 0.3),
            "ll128": collective(0.9, 0.8, 0.94),
        },
    ),
    Parameter(
        "copy_engines",
        "1",
        "engines that copy to and from the host beside running kernels; 0: kernels copy",
        default=assumed(2.0, 0.0, 8.0, "discrete cards have at least one engine a direction; counts are rarely stated"),
    ),
    Parameter(
        "unified_memory",
        "1",
        "1 where host and device share one physical memory",
        default=Sourced(0.0, Provenance.DATASHEET, "a discrete card has its own memory"),
    ),
    Parameter(
        "host_copy_bytes_per_s",
        "B/s",
        "rate at which the host copies pageable memory to or from the driver's pinned buffer",
        default=launched(14.2e9, 5e9, 22e9, "pageable copies of six devices with a known link"),
    ),
    Parameter(
        "vendor_round_trip_s",
        "s",
        "the API's round_trip_s with a vendor's driver",
        keys=("opencl_nvidia", "opencl_amd", "opencl_intel", "opencl_apple", "vulkan_apple"),
        defaults={
            "opencl_nvidia": launched(6.5e-6, 3.4e-6, 25e-6, "31 NVIDIA GPUs"),
            "opencl_amd": launched(12.8e-6, 8e-6, 43e-6, "nine AMD GPUs"),
            "opencl_intel": launched(34e-6, 29e-6, 40e-6, "Intel's integrated GPUs"),
            "opencl_apple": launched(197e-6, 80e-6, 300e-6, "M1 Pro"),
            "vulkan_apple": launched(324e-6, 150e-6, 500e-6, "M1 Pro"),
        },
    ),
    Parameter(
        "vendor_dispatch_s",
        "s",
        "the API's dispatch_s with a vendor's driver",
        keys=("opencl_apple", "vulkan_apple"),
        defaults={
            "opencl_apple": launched(2.2e-6, 1e-6, 10e-6, "M1 Pro"),
            "vulkan_apple": launched(151e-6, 50e-6, 300e-6, "M1 Pro"),
        },
    ),
    Parameter("dispatch_s", "s", "this silicon's own value of the API's dispatch_s", keys=API_KEYS),
    Parameter("round_trip_s", "s", "this silicon's own value of the API's round_trip_s", keys=API_KEYS),
    Parameter("copy_setup_s", "s", "this silicon's own value of the API's copy_setup_s", keys=API_KEYS),
    Parameter("pageable_fraction", "1", "rate of pageable over pinned copies where it was measured", keys=API_KEYS),
    Parameter(
        "kernel_floor_s",
        "s",
        "device time of the shortest kernel: launch, first loads, drain",
        default=fitted(2.3e-6, 1.8e-6, 4e-6, GEMM_DATA),
    ),
    Parameter(
        "vector_efficiency",
        "1",
        "attained fraction of the vector units' peak",
        default=assumed(0.75, 0.5, 0.95, "library kernels without matrix units attain most of the peak"),
    ),
    Parameter(
        "memory_efficiency",
        "1",
        "attained fraction of the specified memory bandwidth",
        default=fitted(0.75, 0.66, 0.9, MEMBOUND_DATA + "; " + GEMM_DATA),
    ),
    Parameter(
        "special_ops_per_clock",
        "1",
        "exponentials and reciprocals of one compute unit in a clock",
        default=assumed(16.0, 8.0, 32.0, "16 on NVIDIA (CUDA programming guide) and a quarter of 64 lanes on AMD"),
    ),
    Parameter(
        "inband_ecc",
        "1",
        "1 where the check bits of error correction are kept in the device memory itself",
        default=Sourced(0.0, Provenance.DATASHEET, "stacked memory keeps them apart; consumer boards have none"),
    ),
    Parameter(
        "stream_efficiency",
        "1",
        "attained over specified bandwidth of large passes over arrays, by group of devices",
        keys=("hbm", "early", "gddr", "gddr_ecc", "amd", "intel", "apple"),
        defaults={
            "hbm": streamed(0.934, 0.88, 0.96),
            "early": streamed(0.758, 0.73, 0.79),
            "amd": streamed(0.89, 0.8, 0.95),
            "gddr": Sourced(
                0.92,
                Provenance.PUBLISHED,
                "krrishnarraj/clpeak@a89d2ae^ (Apache-2.0): 419 to 425 of 448 GB/s on RTX 5060; " + STENCIL_DATA,
                0.85,
                0.96,
            ),
            "gddr_ecc": assumed(
                0.84, 0.74, 0.9, "1.16 times what lattice-Boltzmann sweeps attain on such boards, as on HBM boards"
            ),
            "intel": assumed(0.88, 0.7, 0.94, "1.16 times what lattice-Boltzmann sweeps attain, as on NVIDIA's boards"),
            "apple": Sourced(
                0.91,
                Provenance.PUBLISHED,
                "krrishnarraj/clpeak@a89d2ae^ (Apache-2.0): 182 to 184 of 200 GB/s on M1 Pro",
                0.85,
                0.95,
            ),
        },
        taught=True,
    ),
    Parameter(
        "stencil_efficiency",
        "1",
        "attained over specified bandwidth of sweeps over neighbours, by group of devices",
        keys=("hbm", "early", "gddr", "gddr_ecc", "amd", "intel", "apple"),
        defaults={
            "hbm": counted(0.805, 0.7, 0.85, STENCIL_DATA),
            "early": counted(0.77, 0.66, 0.85, STENCIL_DATA),
            "gddr": counted(0.85, 0.78, 0.93, STENCIL_DATA),
            "gddr_ecc": counted(0.745, 0.67, 0.79, STENCIL_DATA),
            "amd": counted(0.61, 0.49, 0.76, STENCIL_DATA),
            "intel": counted(0.72, 0.46, 0.88, STENCIL_DATA),
            "apple": counted(0.875, 0.8, 0.92, STENCIL_DATA),
        },
    ),
    Parameter(
        "element_clocks",
        "1",
        "vector instructions an element, of float32 lanes",
        keys=("activation", "pow", "pow_amd", "softmax", "softmax_long", "ln"),
        defaults={
            "activation": streamed(25.0, 7.0, 35.0),
            "pow": streamed(49.5, 40.0, 60.0),
            "pow_amd": streamed(161.0, 100.0, 200.0),
            "softmax": streamed(58.0, 34.0, 70.0),
            "softmax_long": streamed(70.0, 55.0, 100.0),
            "ln": streamed(12.0, 10.0, 30.0),
        },
        taught=True,
    ),
    Parameter(
        "row_clocks",
        "1",
        "clocks of a compute unit for each row, beside its elements: reductions and the block's start",
        keys=("softmax", "softmax_amd", "ln"),
        defaults={
            "softmax": streamed(87.0, 25.0, 370.0),
            "softmax_amd": streamed(3450.0, 1500.0, 5000.0),
            "ln": streamed(846.0, 600.0, 900.0),
        },
        taught=True,
    ),
    Parameter(
        "reread",
        "1",
        "of a long row's traffic, what a second look at it adds",
        keys=("softmax", "ln"),
        defaults={"softmax": streamed(0.15, 0.05, 0.2), "ln": streamed(0.72, 0.5, 0.8)},
        taught=True,
    ),
    Parameter(
        "eager_gap_s",
        "s",
        "what an eager framework's timing of one operation adds to its kernel: the launch and the events around it",
        default=streamed(18.8e-6, 17e-6, 22e-6),
        taught=True,
    ),
    Parameter(
        "framework_dispatch_s",
        "s",
        "host time of an eager framework around one operation, beside the API's own",
        default=counted(24e-6, 14e-6, 56e-6, "the shortest eager operations of six devices: " + EAGER_DATA),
    ),
    Parameter(
        "aes_bytes_per_clock",
        "B",
        "AES-128 in counter mode by table look-up: bytes of one compute unit in a clock",
        default=assumed(
            1.55, 0.5, 3.0, "878.6 Gbit/s on RTX 2070 Super (Tezcan, IEEE Access 9, 2021), taken over to other designs"
        ),
    ),
    Parameter(
        "aes_round_clocks",
        "1",
        "latency of one AES round of one block, clocks",
        default=assumed(120.0, 40.0, 300.0, "dependent look-ups in shared memory, about 30 clocks each"),
    ),
    Parameter(
        "ghash_factor",
        "1",
        "cost of GCM over that of counter mode",
        default=assumed(1.6, 1.1, 3.0, "no carry-less multiplication in hardware: GHASH by tables"),
    ),
)

STREAM_FITS = {
    "stream_efficiency": 0.1,
    "element_clocks": 0.5,
    "row_clocks": 0.5,
    "reread": 0.3,
    "eager_gap_s": 0.15,
    "framework_dispatch_s": 0.3,
}
STENCIL_FITS = {"stencil_efficiency": 0.15, "eager_gap_s": 0.15, "framework_dispatch_s": 0.3}
COPY_FITS = {"host_link_efficiency": 0.15, "host_copy_bytes_per_s": 0.4, "stream_efficiency": 0.1}
COLLECTIVE_FITS = {
    "scale_up_efficiency": 0.3,
    "scale_out_bytes_per_s": 0.7,
    "scale_out_ports": 0.3,
    "collective_launch_s": 0.4,
    "collective_step_s": 0.3,
    "protocol_share": 0.3,
}
"""How far (log, one standard deviation) a device's own number may lie from what others taught."""
