"""SKU files, API profiles and overlays: what is wrong in one is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import check_all

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.provenance import Provenance
from windtunnel.core.spec import DeviceSpec
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds import _tables, find_kind, kind_names
from windtunnel_models.kinds._shared import service
from windtunnel_models.specs import api_names, api_profile

SKU = """\
schema: 1
sku: mine
kind: server
vendor: me
name: my server
apis: [native]
sources:
  box: {text: the label on the box, provenance: datasheet}
values:
  idle_power_w: {value: 20 W, source: box}
  max_power_w: {value: 90 W, provenance: assumed, low: 80 W, high: 100 W, reason: the label is hard to read}
"""


def refused(folder: Path, text: str, name: str = "mine.yaml") -> str:
    (folder / name).write_text(text)
    with pytest.raises(InputError) as caught:
        Catalogue([folder]).device(name.removesuffix(".yaml"))
    return str(caught.value)


def test_a_users_own_file_joins_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SKU)
    device = Catalogue([tmp_path]).device("mine")
    assert device.idle_power_w == 20.0
    assert device.values["max_power_w"].provenance is Provenance.ASSUMED
    assert windtunnel.predict("service", "mine", {"mean": "1 ms"}, catalogue=Catalogue([tmp_path])).power_w == 90.0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("schema: 1", "schema: 2", "expected schema: 1"),
        ("sku: mine", "sku: yours", "differs from the file's name"),
        ("kind: server", "kind: servr", "mine.yaml:3:7: kind: unknown kind 'servr'"),
        ("idle_power_w:", "idle_powr_w:", "did you mean 'idle_power_w'?"),
        ("value: 20 W", "value: 20", "mine.yaml:10:25: values.idle_power_w.value: '20' has no unit"),
        ("value: 20 W", "value: 20 s", "is measured in 's'"),
        ("source: box", "source: bax", "did you mean 'box'?"),
        ("provenance: datasheet", "provenance: datashet", "did you mean 'datasheet'?"),
        (", reason: the label is hard to read", "", "an assumed number needs a range and a reason"),
        ("low: 80 W", "low: 95 W", "lies outside its range"),
        ("{value: 20 W, source: box}", "20 W", "a number needs its source"),
        ("  idle_power_w: {value: 20 W, source: box}\n", "", "a server needs 'idle_power_w'"),
        ("apis: [native]", "apis: [natif]", "did you mean 'native'?"),
        ("apis: [native]", "apis: [cuda]", "the API 'cuda' does not reach a server"),
        ("vendor: me", "vendr: me", "did you mean 'vendor'?"),
    ],
)
def test_what_is_wrong_in_a_sku_file_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert old in SKU
    assert says in refused(tmp_path, SKU.replace(old, new, 1))


def test_every_shipped_sku_is_in_the_folder_of_its_kind() -> None:
    """So that the files of other kinds need not be read to find the relatives of a SKU."""
    catalogue = Catalogue()
    for sku in catalogue.skus()[:-1]:
        assert catalogue._files[sku].parent.name == catalogue.spec(sku).kind


def test_a_sku_described_twice_is_refused(tmp_path: Path) -> None:
    assert "described twice" in refused(tmp_path, SKU.replace("sku: mine", "sku: server"), "server.yaml")


def test_every_api_profile_reaches_some_kind_and_every_kind_has_one() -> None:
    reached = {kind for name in api_names() for kind in api_profile(name).kinds}
    assert reached == set(kind_names())
    assert set(api_names()) >= {
        "cuda",
        "hip",
        "vulkan",
        "metal",
        "wgpu",
        "opencl",
        "xrt",
        "jax",
        "qat",
        "doca",
        "native",
    }


def test_every_number_of_the_catalogue_says_where_it_comes_from() -> None:
    for spec in Catalogue().specs():
        for path, value in spec.values.items():
            assert value.source, f"{spec.sku} {path}"
            if value.provenance is Provenance.ASSUMED:
                assert value.reason and value.low is not None and value.high is not None, f"{spec.sku} {path}"
        find_kind(spec.kind)


NEW_WITH_SERVING = [
    "h100-pcie-80gb",
    "h100-nvl-94gb",
    "h200-nvl-141gb",
    "b300-sxm-288gb",
    "gb300",
    "rtx-5090",
    "l20",
    "a40",
    "mi325x-256gb",
    "mi355x-288gb",
]


def test_every_gpu_states_its_node_and_what_joins_its_devices() -> None:
    """A fleet entry with a group reads both from the SKU; a computer with one GPU has no link."""
    catalogue = Catalogue()
    for spec in catalogue.specs():
        if spec.kind != "gpu":
            continue
        devices = spec.values["devices_per_node"].value
        linked = {"scale_up_bytes_per_s", "host_link_bytes_per_s"} & set(spec.values)
        assert devices == 1 or linked, spec.sku
        assert "scale_up_bytes_per_s" not in spec.values or devices > 1, spec.sku
    nodes = {
        sku: catalogue.device(sku).number("devices_per_node") for sku in ("h100-sxm-80gb", "gb300", "h200-nvl-141gb")
    }
    assert nodes == {"h100-sxm-80gb": 8, "gb300": 72, "h200-nvl-141gb": 4}


OPERATIONS: dict[str, dict[str, object]] = {
    "gemm": {"m": 512, "n": 4096, "k": 4096, "dtype": "bfloat16"},
    "attention": {"phase": "decode", "batch": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "kv_tokens": 2048},
    "moe": {"tokens": 64, "width": 4096, "expert_width": 1536, "experts": 128, "experts_per_token": 8},
    "latent_attention": {"phase": "decode", "batch": 32, "heads": 16, "kv_tokens": 4096},
    "all_reduce": {"bytes": 2**20, "workers": 2},
}


@pytest.mark.parametrize("sku", NEW_WITH_SERVING)
def test_a_device_without_measurements_runs_what_a_decoder_needs(sku: str) -> None:
    spec = Catalogue().spec(sku)
    assert {v.provenance for v in spec.values.values()} <= {
        Provenance.DATASHEET,
        Provenance.ASSUMED,
        Provenance.PUBLISHED,
    }
    for op, columns in OPERATIONS.items():
        cost = windtunnel.predict(op, sku, columns)
        assert 0 < cost.duration_low_s < cost.duration_s < cost.duration_high_s, op
        if op == "gemm":
            peak = spec.values["matrix_flops_per_s.bfloat16"].value
            assert cost.duration_s > 2 * 512 * 4096 * 4096 / peak


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        ("h100-sxm-80gb", "h100-pcie-80gb"),
        ("h200-sxm-141gb", "h200-nvl-141gb"),
        ("h200-nvl-141gb", "h100-nvl-94gb"),
        ("b300-sxm-288gb", "b200-sxm-180gb"),
        ("gb300", "gb200"),
        ("rtx-pro-6000-server", "rtx-5090"),
        ("rtx-5090", "rtx-4090"),
        ("l40s", "l20"),
        ("a40", "a10"),
        ("mi355x-288gb", "mi325x-256gb"),
        ("mi325x-256gb", "mi300x"),
    ],
)
def test_siblings_are_in_the_order_of_their_datasheets(faster: str, slower: str) -> None:
    """Long products and long reads of a cache, where launches do not matter; equal peaks may differ by 2%."""
    for op in ("gemm", "attention"):
        columns = {**OPERATIONS[op], **({"m": 8192} if op == "gemm" else {"batch": 256})}
        assert (
            windtunnel.predict(op, faster, columns).duration_s
            < 1.02 * windtunnel.predict(op, slower, columns).duration_s
        )


def test_the_h200_is_known_by_its_datasheet_alone() -> None:
    spec = Catalogue().spec("h200-sxm-141gb")
    assert {v.provenance for v in spec.values.values()} <= {Provenance.DATASHEET, Provenance.ASSUMED}


OVERLAY = """\
schema: 1
sku: h100-sxm-80gb
sources:
  mine: {text: fitted here, provenance: measured}
values:
  gemm_efficiency: {bfloat16: {value: 0.4, source: mine}}
"""


def test_an_overlay_is_laid_over_its_sku_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "o.yaml"
    path.write_text(OVERLAY)
    values = {"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"}
    plain = windtunnel.predict("gemm", "h100-sxm-80gb", values)
    slower = windtunnel.predict("gemm", "h100-sxm-80gb", values, calibration=str(path))
    assert slower.duration_s > 1.3 * plain.duration_s
    with pytest.raises(InputError, match=r"o\.yaml:2:6: sku: this overlay is of 'h100-sxm-80gb'; expected l4"):
        windtunnel.predict("gemm", "l4", values, calibration=str(path))


KIND_FILE = """\
schema: 1
kind: drive
doc: flash behind a queue
sources:
  sheet: {provenance: datasheet, text: a sheet}
assumptions:
  usual: other drives
parameters:
  command_s: {unit: s, doc: one command, required: true}
  share:
    unit: "1"
    doc: of the rate
    keys: [read, write]
    defaults:
      read: {value: 0.9, low: 0.5, high: 1, assumption: usual}
      write: {value: 0.5, source: sheet}
errors:
  copy: {value: 1.5, published: a table}
fits:
  copy: {command_s: 0.3}
"""


def test_a_kind_file_is_read_with_types_and_its_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tables, "__file__", str(tmp_path / "_tables.py"))
    path = tmp_path / "drive.yaml"
    path.write_text(KIND_FILE)
    kind = _tables.read_kind("drive", {"copy": service, "service": service})
    share = kind.parameter("share")
    assert share.keys == ("read", "write") and kind.parameter("command_s").required
    assert (share.defaults["read"].high, share.defaults["read"].reason) == (1.0, "other drives")
    assert (share.defaults["write"].provenance, share.defaults["write"].source) == (Provenance.DATASHEET, "a sheet")
    assert kind.errors["copy"].provenance is Provenance.PUBLISHED and kind.errors["service"].value == 1.0
    assert kind.fits == {"copy": {"command_s": 0.3}}
    slips = {
        ("unit: s,", "unit: sec,"): "drive.yaml:9.*unit",
        ("      read: {", "      raed: {"): "drive.yaml:15.*unknown key of share 'raed'.*did you mean 'read'",
        ("source: sheet", "source: shet"): "drive.yaml:16.*did you mean 'sheet'",
        (", published: a table", ""): "drive.yaml:18.*a number needs its source",
        ("  copy: {value", "  cpoy: {value"): "drive.yaml:18.*did you mean 'copy'",
        ("high: 1,", "high: 0.1,"): "drive.yaml:15",
        ("kind: drive", "kind: drvie"): "drive.yaml:2.*expected drive",
        ("required: true", "requird: true"): "drive.yaml:9.*did you mean 'required'",
        ("{command_s: 0.3}", "{command_s: fast}"): "drive.yaml:20",
        ("{command_s: 0.3}", "{comand_s: 0.3}"): "drive.yaml:20.*did you mean 'command_s'",
    }
    for (old, new), message in slips.items():
        path.write_text(KIND_FILE.replace(old, new, 1))
        with pytest.raises(InputError, match=message):
            _tables.read_kind("drive", {"copy": service, "service": service})


def test_every_gpu_is_reached_through_the_apis_that_its_maker_has_drivers_for() -> None:
    """And through no other: a program for another maker's API is refused with those that there are."""
    portable = {"vulkan", "wgpu", "opencl"}
    own = {"NVIDIA": {"cuda"}, "AMD": {"hip"}, "Intel": set(), "Apple": {"metal"}}
    shape = {"m": 512, "n": 512, "k": 512, "dtype": "float32"}
    catalogue = Catalogue()

    def reached(spec: DeviceSpec) -> None:
        assert set(spec.apis) == portable | own[spec.vendor]
        for api in spec.apis:
            device = f"{spec.sku}@{api}"
            products = windtunnel.predict("gemm", device, shape, catalogue=catalogue).duration_s
            launch = windtunnel.predict("launch", device, {}, catalogue=catalogue).duration_s
            assert 0.0 < products < 1.0 and 0.0 < launch < 1e-2, api
        for api in {"cuda", "hip", "metal", "xrt", "native"} - set(spec.apis):
            with pytest.raises(InputError, match=f"{spec.sku} is not reached through {api}; expected one of"):
                catalogue.device(f"{spec.sku}@{api}")

    check_all([spec for spec in catalogue.specs() if spec.kind == "gpu"], reached, lambda spec: spec.sku)
