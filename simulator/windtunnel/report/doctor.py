"""The report of `windtunnel doctor` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.core.results.host import HostReport


def missing_text(report: HostReport) -> str:
    """Name the required back ends that found no device: why, and what to install."""
    reasons = [
        f"{backend.name}: {backend.why}; to install: {backend.install}"
        for backend in report.backends
        if backend.name in report.missing
    ]
    return f"a required back end has no device: {'; '.join(reasons)}"


def doctor_lines(report: HostReport) -> Iterator[str]:
    """Yield the lines of the report of `windtunnel doctor`."""
    python = report.python
    yield f"Windtunnel {report.windtunnel}, Python {python.version} ({python.executable})"
    yield f"  {python.platform}"
    yield "  " + ", ".join(f"{package.name} {package.version}" for package in report.packages if package.version)
    missing = [package.name for package in report.packages if not package.version]
    if missing:
        yield f"  missing: pip install {' '.join(missing)}"
    yield ""
    yield "Compilers, used by the tests of kernels in other languages"
    for compiler in report.compilers:
        state = compiler.version or f"missing ({compiler.purpose}): {compiler.install}"
        yield f"  {compiler.name:<10} {state}"
    yield ""
    yield "Back ends of real devices"
    for backend in report.backends:
        state = backend.state if backend.present else f"{backend.state}: {backend.why}"
        yield f"  {backend.name:<10} {state}"
        for device in backend.devices:
            software = ", software on the processor" if device.software else ""
            yield f"  {'':<10} {device.name}  {device.label}{software} ({device.driver})"
        if not backend.present:
            yield f"  {'':<10} for {backend.reaches}; to install: {backend.install}"
    for card in report.bus:
        if card.address in report.unreached:
            yield (
                f"  PCI {card.address}: {card.what} ({card.ids}) is not reached by any back end; "
                "check that its driver is installed"
            )
    yield ""
    if report.root:
        yield "Running as root: the back end packets can create network namespaces."
    else:
        yield "Not running as root: the back end packets needs user namespaces, and apt needs sudo."
    limits = report.limits
    space = limits.address_space_bytes
    yield (
        f"Limits: {limits.cores:g} cores, {limits.memory_bytes / 1e9:,.1f} GB of memory"
        + ("" if space is None else f", {space / 1e9:,.1f} GB of address space per process")
    )
    measurable = [f"{row.name} (as {row.model})" if row.model else row.name for row in report.validate]
    yield f"Devices that windtunnel validate can measure: {', '.join(measurable) or 'none'}"
