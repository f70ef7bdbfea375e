"""Result files of load generators as tables of measured serving.

Read are the JSON of `vllm bench serve --save-result`, the JSON lines of SGLang's `bench_serving --output-file`, and the
JSON export of GenAI-Perf, by their documented fields. What they do not state, such as the SKU, `--set` has to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from windtunnel.core.csvfile import Table
from windtunnel.core.errors import InputError, Location
from windtunnel.core.yamlfile import read_text

Fields = Mapping[str, object]
SUFFIXES = (".json", ".jsonl")


def read_results(path: Path) -> Table:
    """Return the rows of a result file; each JSON document or line is one.

    Raises:
        InputError: if the file is no JSON, or is of no known load generator.
    """
    text = read_text(path, "result of a load generator")
    documents = list(_documents(text, path))
    rows, lines = [], []
    for line, document in documents:
        row = _row(document, Location(str(path), line))
        rows.append({name: value for name, value in row.items() if value})
        lines.append(line)
    header = tuple(sorted({name for row in rows for name in row}))
    return Table(str(path), header, [[row.get(name, "") for name in header] for row in rows], lines)


def _documents(text: str, path: Path) -> list[tuple[int, Fields]]:
    try:
        return [(1, _mapping(json.loads(text), Location(str(path), 1)))]
    except json.JSONDecodeError as error:
        if path.suffix != ".jsonl":
            where = Location(str(path), error.lineno, error.colno)
            raise InputError(f"this is no JSON: {error.msg}", where=where, expected="a result file") from None
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = Location(str(path), number)
        try:
            out.append((number, _mapping(json.loads(line), where)))
        except json.JSONDecodeError as error:
            raise InputError(f"this is no JSON: {error.msg}", where=where, expected="one result on a line") from None
    return out


def _mapping(data: object, where: Location) -> Fields:
    if not isinstance(data, dict):
        raise InputError("this is not a JSON object", where=where, expected="the result of one run")
    return data


def _row(data: Fields, where: Location) -> dict[str, str]:
    kinds: tuple[tuple[str, Callable[[Fields], dict[str, str]]], ...] = (
        ("time_to_first_token", _genai_perf),
        ("mean_e2e_latency_ms", _sglang),
        ("mean_ttft_ms", _vllm),
    )
    for field, read in kinds:
        if field in data:
            return read(data)
    raise InputError(
        "this is not the result of a known load generator",
        where=where,
        expected="that of vllm bench serve, of SGLang's bench_serving, or of GenAI-Perf",
    )


def _vllm(data: Fields) -> dict[str, str]:
    return {
        "model": str(data.get("model_id", "")),
        **_load(data),
        **_lengths(data),
        "ttft_s": _seconds(data.get("mean_ttft_ms")),
        "tpot_s": _seconds(data.get("mean_tpot_ms")),
        "e2e_s": _seconds(data.get("mean_e2el_ms")),
    }


def _sglang(data: Fields) -> dict[str, str]:
    return {
        "engine": str(data["backend"]) if data.get("backend") in ("sglang", "vllm", "trtllm") else "",
        **_load(data),
        **_lengths(data),
        "ttft_s": _seconds(data.get("mean_ttft_ms")),
        "tpot_s": _seconds(data.get("mean_tpot_ms")),
        "e2e_s": _seconds(data.get("mean_e2e_latency_ms")),
    }


def _genai_perf(data: Fields) -> dict[str, str]:
    """Read ``avg`` of each metric (ms for times), and the concurrency of the run's configuration."""
    stated: object = data.get("input_config", {})
    for name in ("perf_analyzer", "stimulus", "concurrency"):
        stated = stated.get(name, {}) if isinstance(stated, dict) else {}
    gap = "inter_token_latency"
    return {
        "users": str(stated) if isinstance(stated, int) else "",
        "prompt_tokens": _average(data, "input_sequence_length"),
        "output_tokens": _average(data, "output_sequence_length"),
        "ttft_s": _seconds(_average(data, "time_to_first_token")),
        "tpot_s": _seconds(_average(data, gap)),
        "e2e_s": _seconds(_average(data, "request_latency")),
    }


def _load(data: Fields) -> dict[str, str]:
    """Return the users of a run with a limit on concurrency, or else its rate; "inf" is no rate."""
    if data.get("max_concurrency"):
        return {"users": str(data["max_concurrency"])}
    rate = str(data.get("request_rate", ""))
    return {"rate_per_s": "" if rate in ("inf", "Infinity", "None") else rate}


def _lengths(data: Fields) -> dict[str, str]:
    completed = _number(data.get("completed"))
    if not completed:
        return {}
    means = {
        "prompt_tokens": _number(data.get("total_input_tokens")) / completed,
        "output_tokens": _number(data.get("total_output_tokens")) / completed,
    }
    return {name: repr(value) if value else "" for name, value in means.items()}


def _average(data: Fields, name: str) -> str:
    metric = data.get(name)
    return repr(_number(metric.get("avg"))) if isinstance(metric, dict) else ""


def _seconds(milliseconds: object) -> str:
    value = _number(milliseconds)
    return repr(value / 1e3) if value else ""


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0
