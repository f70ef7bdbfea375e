"""What measurements of some devices say of others: relatives by lineage, and what a calibration may not leak."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import windtunnel
from windtunnel.core.device import Device, Parameters
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import Provenance
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu import KIND
from windtunnel_models.learned import read
from windtunnel_models.learned.calibration import Group
from windtunnel_models.learned.fit import _movable
from windtunnel_models.learned.read import read_overlay, shipped_overlay
from windtunnel_models.learned.transfer import closest, relation, relatives

KNOWN = Catalogue()
CALIBRATED = [sku for sku in KNOWN.skus() if sku != "host" and shipped_overlay(sku, KNOWN.spec(sku).kind) is not None]
LEARNED = [sku for sku in CALIBRATED if (found := shipped_overlay(sku, KNOWN.spec(sku).kind)) and found.learned]


def products(dtype: str = "bfloat16", **context: str) -> Rows:
    """A few products of different sizes."""
    m, n, k = (
        np.array(column, dtype=float)
        for column in ([1, 64, 700, 8192], [4096, 512, 3072, 8192], [4096, 4096, 768, 8192])
    )
    choices = {"dtype": dtype, "dispatch": "device", "clock": "burst", "cache": "cold", **context}
    return Rows(OPERATIONS["gemm"], choices, {"m": m, "n": n, "k": k, "batch": np.ones(4)})


@pytest.mark.parametrize(
    ("sku", "other", "expected"),
    [
        ("h200-sxm-141gb", "h100-sxm-80gb", "die"),
        ("a100-sxm-40gb", "a100-sxm-80gb", "die"),
        ("gb200", "b200-sxm-180gb", "die"),
        ("rtx-6000-ada", "l40s", "board"),  # no error correction in memory
        ("a100-pcie-40gb", "a100-sxm-80gb", "board"),  # 250 W for the peak of 400 W
        ("rtx-4090", "l40s", "board"),  # and almost three times the power per FLOP/s
        ("rtx-pro-6000-server", "l40s", "class"),  # boards whose memory is not stacked
        ("h100-sxm-80gb", "a100-sxm-80gb", "generation"),
        ("b200-sxm-180gb", "h100-sxm-80gb", "generation"),
        ("l40s", "a100-sxm-80gb", "class"),  # other memory
        ("mi300x", "h100-sxm-80gb", "maker"),
        ("b200-sxm-180gb", "p100-pcie-16gb", "class"),  # eight years apart
    ],
)
def test_kinship_follows_from_what_a_datasheet_states(sku: str, other: str, expected: str) -> None:
    assert relation(KNOWN.spec(sku), KNOWN.spec(other))[0] == expected
    assert relation(KNOWN.spec(other), KNOWN.spec(sku))[0] == expected


def test_the_same_die_answers_alone_and_weights_sum_to_one() -> None:
    measured = [KNOWN.spec(sku) for sku in ("a100-sxm-80gb", "h100-sxm-80gb", "l40s")]
    of_h200 = closest(relatives(KNOWN.spec("h200-sxm-141gb"), measured))
    assert [kin.sku for kin in of_h200] == ["h100-sxm-80gb"]
    of_b200 = closest(relatives(KNOWN.spec("b200-sxm-180gb"), measured))
    assert len(of_b200) == 3
    assert sum(kin.weight for kin in of_b200) == pytest.approx(1.0)
    assert of_b200[0].sku == "h100-sxm-80gb"
    assert of_b200[0].weight == max(kin.weight for kin in of_b200)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """A catalogue whose calibration folder lacks one SKU's files."""

    def make(sku: str) -> Catalogue:
        folder = tmp_path / "calibration"
        shutil.copytree(read.CALIBRATION, folder, ignore=shutil.ignore_patterns(f"{sku}.*"))
        monkeypatch.setattr(read, "CALIBRATION", folder)
        read.shipped_overlay.cache_clear()
        return Catalogue()

    yield make
    read.shipped_overlay.cache_clear()


@pytest.mark.parametrize("sku", LEARNED)
def test_calibration_none_answers_as_if_the_sku_had_never_been_measured(sku: str, without: object) -> None:
    none = KNOWN.device(sku, calibrated=False).cost(products())
    own = KNOWN.device(sku).cost(products())
    never = without(sku).device(sku).cost(products())  # type: ignore[operator]
    np.testing.assert_array_equal(none.duration_s, never.duration_s)
    np.testing.assert_array_equal(none.duration_high_s, never.duration_high_s)
    assert (none.duration_s != own.duration_s).any()


@pytest.mark.parametrize("sku", LEARNED)
def test_intervals_are_wider_where_only_relatives_were_measured(sku: str) -> None:
    def width(calibrated: bool) -> float:
        cost = KNOWN.device(sku, calibrated=calibrated).cost(products())
        return float(np.median(np.log(cost.duration_high_s / cost.duration_low_s)))

    assert width(calibrated=True) < width(calibrated=False)


def test_the_h200_has_no_file_of_its_own_and_what_it_takes_from_its_die_says_so() -> None:
    assert "h200-sxm-141gb" not in CALIBRATED
    device = KNOWN.device("h200-sxm-141gb")
    transferred = device.values["gemm_efficiency.bfloat16"]
    assert transferred.provenance is Provenance.PUBLISHED
    assert transferred.source.startswith("h100-sxm-80gb, the same die: ")
    assert device.accuracy_of("gemm").basis == "transfer"
    faster = KNOWN.device("h200-sxm-141gb").cost(products()).duration_s
    assert (faster <= KNOWN.device("h100-sxm-80gb").cost(products()).duration_s * 1.001).all()


def test_boards_of_one_die_keep_the_path_to_the_cache_and_take_the_clock_from_their_power() -> None:
    # NVIDIA leaves half of the L40S's tensor rate to the RTX 4090, under a higher power limit.
    server, desktop = (KNOWN.device(sku, calibrated=sku == "l40s") for sku in ("l40s", "rtx-4090"))

    def number(device: Device, name: str) -> float:
        return device.number(f"gemm_{name}", "bfloat16") or 0.0

    peaks = {d.label: (d.number("matrix_flops_per_s", "bfloat16") or 0.0) for d in (server, desktop)}
    units = {d.label: (d.number("compute_units") or 0.0) for d in (server, desktop)}
    paths = [number(d, "l2_bytes_per_flop") * peaks[d.label] / units[d.label] for d in (server, desktop)]
    assert paths[0] == pytest.approx(paths[1])  # both have a boost clock of 2.52 GHz
    assert number(server, "efficiency") < 0.75 < number(desktop, "efficiency") <= 1.0
    # The share of the bandwidth follows what lattice-Boltzmann sweeps attain: 0.85 and 0.67 of it.
    assert number(desktop, "memory_efficiency") / number(server, "memory_efficiency") == pytest.approx(0.854 / 0.671)
    rows = products()
    flops = float(rows.op.flops(rows.choices, rows.numbers)[-1])
    share = [flops / float(d.cost(rows).duration_s[-1]) / peaks[d.label] for d in (server, desktop)]
    assert share[0] < 0.75
    assert 0.8 < share[1] < 1.0


def test_dies_of_one_process_take_the_share_of_the_peak_from_their_power() -> None:
    def carried(of: str, to: str) -> float:
        sheets = (Parameters(KNOWN.device(sku, calibrated=False)) for sku in (of, to))
        return KIND.carried(*sheets, "gemm_efficiency.bfloat16", 0.8, False)

    assert carried("b200-sxm-180gb", "h100-sxm-80gb") > 0.85  # 0.71 W for each TFLOP/s in place of 0.44 W
    assert carried("h100-sxm-80gb", "b200-sxm-180gb") < 0.75
    assert carried("a100-sxm-80gb", "h100-sxm-80gb") == 0.8  # another process
    assert carried("l40s", "h100-sxm-80gb") == 0.8  # another class of memory
    assert carried("arc-pro-b60", "l40s") == 0.8  # another maker


def test_a_host_that_launches_product_after_product_hides_those_that_are_shorter() -> None:
    device = replace(KNOWN.device("arc-pro-b60"), residuals={})
    clock_hz, clocks = device.number("boost_clock_hz") or 0.0, device.number("gemm_floor_clocks", "bfloat16") or 0.0
    floor_s, numbers = clocks / clock_hz, {"n": np.array([1024.0]), "k": np.array([5120.0]), "batch": np.ones(1)}
    rows = Rows(OPERATIONS["gemm"], products().choices, {"m": np.ones(1), **numbers})
    stream_s = 2.0 * 1024 * 5120 / (device.number("memory_bandwidth_bytes_per_s") or 0.0)
    time_s = float(device.cost(rows, intervals=False).duration_s[0])
    assert stream_s > 0.6 * floor_s
    assert floor_s < time_s < 1.2 * floor_s


def test_calibrate_moves_the_numbers_of_a_measured_die_less() -> None:
    def moves(sku: str) -> dict[str, float]:
        rows = products()
        group = Group(rows, np.ones(4), np.arange(4), np.zeros(4, dtype=np.int64), np.ones(4))
        return _movable(KNOWN.device(sku, calibrated=False), [group])

    similar, other = moves("gb200"), moves("rtx-4090")
    path = "gemm_efficiency.bfloat16"
    assert similar[path] == pytest.approx(0.3 * other[path])
    assert other[path] == KIND.fits["gemm"]["gemm_efficiency"]


@pytest.mark.parametrize("sku", ["arc-pro-b60", "b200-sxm-180gb", "l40s", "rtx-4090"])
def test_no_product_is_faster_than_the_peak(sku: str) -> None:
    rng = np.random.default_rng(0)
    m, n, k = np.exp(rng.uniform(np.log(256), np.log(60_000), (3, 8000)))
    m, n, k = 256.0 * np.ceil(m / 256.0), 256.0 * np.ceil(n / 256.0), np.round(k)  # whole tiles
    rows = Rows(OPERATIONS["gemm"], products().choices, {"m": m, "n": n, "k": k, "batch": np.ones(8000)})
    device = KNOWN.device(sku)
    peak = device.number("matrix_flops_per_s", "bfloat16") or 0.0
    least_s = rows.op.flops(rows.choices, rows.numbers) / peak
    assert (device.cost(rows, intervals=False).duration_s >= least_s * (1.0 - 1e-9)).all()


def test_a_lower_power_limit_of_the_same_die_never_makes_a_product_shorter() -> None:
    card, module = KNOWN.device("a100-pcie-80gb").cost(products()), KNOWN.device("a100-sxm-80gb").cost(products())
    assert (card.duration_s >= module.duration_s * 0.999).all()
    assert card.duration_s[-1] > 1.05 * module.duration_s[-1]


def test_intervals_widen_with_the_distance_of_the_relatives() -> None:
    def width(sku: str) -> float:
        cost = KNOWN.device(sku, calibrated=False).cost(products())
        return float(np.median(np.log(cost.duration_high_s / cost.duration_low_s)))

    assert width("h200-sxm-141gb") < width("rtx-4090") < width("rtx-pro-6000-server") < width("mi300x")


def test_the_interval_of_another_vendors_device_contains_a_launch_that_its_measurements_may_contain() -> None:
    """Measurements of Arc Pro B60 were made without graphs; its shortest products took 27 to 36 us, host included."""
    rows = products()

    def ends(sku: str, dispatch: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        asked = replace(rows, choices={**rows.choices, "dispatch": dispatch})
        cost = KNOWN.device(sku, calibrated=False).cost(asked)
        return cost.duration_s, cost.duration_s / cost.duration_low_s, cost.duration_high_s / cost.duration_s

    value, below, above = ends("arc-pro-b60", "device")
    eager, _, _ = ends("arc-pro-b60", "eager")
    np.testing.assert_allclose(below, 1.75)
    np.testing.assert_allclose(np.log(above) ** 2, np.log(1.75) ** 2 + np.log(eager / value) ** 2)
    assert value[1] < 20e-6
    assert (value * above)[1] > 32e-6
    assert above[-1] < 1.76  # long products hide it
    # The launch is known where the vendor's own devices were measured, and where a graph is replayed.
    np.testing.assert_allclose(ends("l40s", "device")[2], 1.6)
    assert (ends("mi300x", "graph")[2] < ends("mi300x", "device")[2])[1]
    assert "launch" in KNOWN.device("mi300x").accuracy_of("gemm").text


def test_a_format_nobody_measured_takes_the_kernels_of_its_width() -> None:
    half, brain = (KNOWN.device("a100-sxm-80gb").cost(products(dtype)) for dtype in ("float16", "bfloat16"))
    np.testing.assert_allclose(half.duration_s, brain.duration_s)
    assert (KNOWN.device("a100-sxm-80gb").cost(products("float32")).duration_s > 4 * brain.duration_s)[-1]


def test_how_well_a_device_is_known_is_told_by_its_fit_or_its_relatives() -> None:
    own, kin = KNOWN.device("a100-sxm-80gb").accuracy_of("gemm"), KNOWN.device("mi300x").accuracy_of("gemm")
    assert own.basis == "measured"
    assert own.cross_validation_error is not None
    assert 0.0 < own.cross_validation_error < 0.2
    assert kin.basis == "transfer"
    assert kin.error_factor is not None
    assert kin.error_factor > 1.2
    assert KNOWN.device("mi300x").accuracy_of("fft").basis == "formula"


OVERLAY = """\
schema: 1
sku: l4
sources:
  mine: {text: here, provenance: measured}
values: {}
learned:
  gemm: {form: points, measurements: 12, source: mine, points: "m,n\\n", scales: {}}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("form: points", "form: point", "did you mean 'points'"),
        ("measurements: 12", "measurements: none", "expected a count"),
        ("source: mine, points", "source: yours, points", "unknown source 'yours'"),
        ("  gemm:", "  gem:", "did you mean 'gemm'"),
        (", scales: {}", "", "'scales' is missing"),
        (
            '  gemm: {form: points, measurements: 12, source: mine, points: "m,n\\n", scales: {}}',
            "  gemm: 3",
            "not a mapping",
        ),
    ],
)
def test_a_slip_in_what_was_learned_is_named_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "l4.yaml"
    assert old in OVERLAY
    path.write_text(OVERLAY.replace(old, new))
    with pytest.raises(InputError, match=said) as caught:
        read_overlay(path, "l4", "gpu")
    assert "l4.yaml:7" in str(caught.value)


def test_points_that_were_cut_are_refused_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "l4.yaml"
    path.write_text(OVERLAY)
    with pytest.raises(InputError, match="points"):
        windtunnel.predict("gemm", "l4", {"m": 64, "n": 64, "k": 64, "dtype": "float16"}, calibration=str(path))


def test_an_array_file_that_is_missing_is_named(without: object, tmp_path: Path) -> None:
    known = without("nothing")  # type: ignore[operator]
    (read.CALIBRATION / "a100-sxm-80gb.npz").unlink()
    with pytest.raises(InputError, match=r"a100-sxm-80gb\.npz: the array file cannot be read"):
        known.device("a100-sxm-80gb").cost(products())


def test_an_array_that_is_damaged_is_named_at_its_first_use(without: object) -> None:
    known = without("nothing")  # type: ignore[operator]
    path = read.CALIBRATION / "a100-sxm-80gb.npz"
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    members["gemm.w0_0.npy"] = b"no array"
    with zipfile.ZipFile(path, "w") as damaged:
        for name, content in members.items():
            damaged.writestr(name, content)
    device = known.device("a100-sxm-80gb")
    with pytest.raises(InputError, match=r"a100-sxm-80gb\.npz: the array file cannot be read"):
        device.cost(products())
