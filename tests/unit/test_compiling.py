"""Machine code of the compiled engine: who compiles it, where it is kept, how it is loaded, and runs without it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba import types
from tests.differential.comparison import assert_same, prepared

from windtunnel.app import compile as compile_command
from windtunnel.cli.main import main
from windtunnel.core.errors import InputError, WindtunnelError
from windtunnel.core.yamlfile import dump
from windtunnel.engine.choice import run_on
from windtunnel.engine.compiled import background, elf, kernels, machine_code
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.compiled.jit import object_code
from windtunnel.engine.compiled.machine_code import Call, ObjectCode, Place, loaded, loaded_by_llvm
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.fleet import policy_functions
from windtunnel.simulation.run import run

COMPILE = """
import sys
from windtunnel.policies import orders, routes
from windtunnel.engine.compiled import kernels
kernels.compiled_score(routes.least_loaded)
kernels.compiled_key(None)
print("numba" in sys.modules)
"""
SERVED: dict[str, Any] = {
    "schema": 1,
    "name": "served",
    "seed": 3,
    "fleet": [{"device": "h100-sxm-80gb", "count": 2, "price": "2 USD/h"}],
    "models": {"m": {"catalogue": "llama-3.1-8b"}},
    "workload": [
        {
            "name": "chat",
            "arrivals": {"process": "poisson", "rate": "40 /s"},
            "ops": [{"generate": {"model": "m", "prompt": 200, "output": 20}}],
        }
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 16, "tokens": 512}},
    "stop": {"jobs": 600},
    "targets": ["ttft p99 <= 1 s"],
}
FAILING: dict[str, Any] = {
    "schema": 1,
    "name": "failing",
    "seed": 5,
    "fleet": [{"device": "server", "count": 3, "speed": speed, "price": f"{speed} USD/h"} for speed in (1, 2)],
    "workload": [
        {
            "name": "calls",
            "arrivals": {"process": "burst", "rate": "2000 /s", "burst_rate": "9000 /s", "every": "20 ms", "duration": "4 ms"},
            "ops": [{"service": {"distribution": "lognormal", "mean": "2 ms", "cv": 2}}],
        }
    ],
    "policy": {"route": "shortest-expected-completion", "order": "shortest"},
    "faults": [{"kind": "failure", "mtbf": "50 ms", "mttr": "10 ms", "on_failure": "migrate"}],
    "stop": {"jobs": 1500},
    "targets": ["latency p99 <= 20 ms"],
}  # fmt: skip


def compiling_process(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", COMPILE], env=environment, stdout=subprocess.PIPE, text=True)


def test_one_process_compiles_and_others_that_wait_or_come_later_load_without_numba(tmp_path: Path) -> None:
    answers = sorted(process.communicate()[0].strip() for process in [compiling_process(tmp_path) for _ in range(2)])
    assert answers in (["False", "True"], ["True", "True"])  # each compiles one of two functions, or one both
    assert compiling_process(tmp_path).communicate()[0].strip() == "False"
    assert len(list(tmp_path.glob("*.o"))) == 2


def test_a_run_whose_machine_code_is_stored_imports_no_compiler(tmp_path: Path) -> None:
    program = f"""
import sys
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import run
run(scenario_from_data({FAILING!r}), engine="compiled")  # stores what is missing
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    program += "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'numba', 'llvmlite'}))"
    imported = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert imported.split() == ([] if elf.is_supported() else ["llvmlite"])


TABLE = tuple(7 * i % 31 for i in range(64))


def _of_two(a: int, b: int) -> int:
    if b == 0:
        raise ValueError("b is 0")
    return TABLE[a % 64] * a + int(1000 * math.log(b)) - a // b


def test_both_loaders_give_the_function_with_its_tables_its_calls_and_its_exceptions() -> None:
    code = object_code(_of_two, types.int64(types.int64, types.int64))
    again = ObjectCode.from_bytes(code.to_bytes())
    assert again == code
    for load in (loaded, loaded_by_llvm):
        call = Call(load(again))
        for a, b in ((0, 1), (63, 17), (10**9, 3)):
            assert call([a, b]) == _of_two(a, b)
        with pytest.raises(ValueError, match="b is 0"):
            call([1, 0])
        with pytest.raises(TypeError, match="takes 2 words"):
            call([1])


def test_an_object_file_of_another_form_is_refused_and_not_executed() -> None:
    content = object_code(_of_two, types.int64(types.int64, types.int64)).content
    for wrong in (b"", b"\xcf\xfa\xed\xfe" + content[4:], content[:18] + b"\xb7" + content[19:]):
        with pytest.raises(elf.UnsupportedObjectError):
            elf.load(wrong, lambda _: 1)
    if elf.is_supported():
        with pytest.raises(elf.UnsupportedObjectError, match="log is not known"):
            elf.load(content, lambda name: None if name == "log" else 1)


def test_a_file_is_found_for_its_sources_and_replaced_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    source, other = tmp_path / "a.py", tmp_path / "b.py"
    source.write_text("a"), other.write_text("b")
    code = ObjectCode("f", 2, ("log",), b"\n\0code")
    place, changed = Place("f", (source,)), Place("f", (source, other))
    assert place.read() is None
    place.write(code)
    assert (place.read(), place.is_stored(), changed.is_stored()) == (code, True, False)
    changed.write(code)
    assert (place.is_stored(), changed.is_stored()) == (True, True)  # another installation may use it
    monkeypatch.setattr(machine_code, "_BESIDE", tmp_path / "kept")
    changed.write(code)
    assert (place.is_stored(), changed.is_stored()) == (False, True)
    stored = tmp_path / "kept" / changed.file
    stored.write_bytes(stored.read_bytes()[:-1])
    assert changed.read() is None  # as if it were not there
    with place.one_process():
        assert place.is_locked()
    assert not place.is_locked()


def test_every_policy_has_an_argument_that_compiles_it_in_another_process() -> None:
    named = {function.__name__ for _, function in policy_functions()}
    assert named >= {"least_loaded", "shortest_job"}
    for use, function in [*policy_functions(), ("score", None), ("key", None)]:
        known, _, path = kernels.argument_of(use, function).partition("=")
        module, _, name = path.partition(":")
        assert known == use
        assert getattr(sys.modules[module], name) is (function or kernels._NONE[use])


def test_the_background_process_stores_what_was_missing_and_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(background, "_processes", started := {})
    missing = (kernels.argument_of("key", None),)
    assert background.started(missing)
    assert background.started(missing)
    (process,) = started.values()
    assert process.wait() == 0
    assert background.started(missing)
    assert [path.name.partition(".")[0] for path in tmp_path.glob("*.o")] == ["key_kernels__no_key"]


def test_a_run_that_waits_because_no_folder_can_be_written_to_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(background, "_processes", {})
    assert not background.started((kernels.argument_of("key", None),))
    assert "No folder for machine code can be written to" in caplog.text and "NUMBA_CACHE_DIR" in caplog.text


def test_the_command_compiles_what_is_missing_and_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_command, "VARIANTS", {})
    monkeypatch.setattr(compile_command, "policy_functions", list)
    with pytest.raises(SystemExit) as ended:
        main(["compile"])
    assert (ended.value.code, str(tmp_path) in capsys.readouterr().out) == (0, True)
    assert len(list(tmp_path.glob("*.o"))) == 2  # the functions for policies without a route and without an order
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match="no folder for machine code"):
        compile_command.compile_engine(lambda _done, _total: None)


def _die(_what: object) -> None:
    os._exit(9)


def test_a_killed_process_that_compiles_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_command, "VARIANTS", {})
    monkeypatch.setattr(compile_command, "policy_functions", list)
    monkeypatch.setattr(compile_command, "compile_now", _die)
    with pytest.raises(WindtunnelError, match="was killed, perhaps because memory ran out .* goes on from there"):
        compile_command.compile_engine(lambda _done, _total: None)


@pytest.mark.parametrize("data", [SERVED, FAILING], ids=lambda data: str(data["name"]))
@pytest.mark.parametrize("polls", [None, 2])
def test_a_run_without_machine_code_has_the_same_result_and_its_jobs_never_decrease(
    data: dict[str, Any], polls: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``polls``: after how many looks the machine code is there; None: only after the run."""
    ready = prepared(data)
    wanted = compiled.run(ready)
    whole = run(scenario_from_data(data)).result.to_dict()
    looks = 0

    class Missing:
        def is_stored(self) -> bool:
            nonlocal looks
            looks += 1
            return polls is not None and looks >= polls

    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(background, "started", lambda missing: asked.append(missing) or True)
    monkeypatch.setattr(kernels, "missing_code", lambda _: {"fleet": Missing()})
    ran: list[int] = []
    monkeypatch.setattr(compiled, "run", _counting(compiled.run, ran))
    seen: list[int] = []
    assert_same(run_on("compiled", ready, seen.append), wanted)
    assert seen == sorted(seen)
    assert seen[-1] == len(wanted.jobs.arrival)
    assert (len(ran), asked) == (0 if polls is None else 1, [("fleet",)])
    assert run(scenario_from_data(data)).result.to_dict() == whole
    run_on("compiled", ready, waits=True)
    assert len(ran) > (0 if polls is None else 1)


def _counting(run_compiled: Any, ran: list[int]) -> Any:
    def counted(prepared: PreparedRun, *arguments: Any) -> Any:
        ran.append(1)
        return run_compiled(prepared, *arguments)

    return counted


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    for process in background._processes.values():
        process.wait()


def test_a_users_own_policy_and_a_very_long_run_wait_for_the_machine_code(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def fewest(device):\n    return device.jobs\n")
    (tmp_path / "s.yaml").write_text(dump(queue(stop={"jobs": 50}, policy={"route": "mine.py:fewest"})))
    monkeypatch.setattr(kernels, "missing_code", lambda _: pytest.fail("the run did not wait"))
    run(tmp_path / "s.yaml")
    run(scenario_from_data(queue(stop={"jobs": 50}, records="sample")))
