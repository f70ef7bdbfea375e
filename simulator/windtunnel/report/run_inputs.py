"""Where every input of a run came from, and how accurate the models of its devices are."""

from __future__ import annotations

import re

from markupsafe import Markup

from windtunnel.core.provenance import PROVENANCES
from windtunnel.core.results.run import ModelInput, RunResult
from windtunnel.report import page
from windtunnel.report.contexts import contexts_table
from windtunnel.report.numbers import NOTHING, exact_range, is_finite, number, plural, quantity_in_unit, share
from windtunnel.report.page import InputGroup, InputRow, ProvenanceCount

MAX_PROVENANCE_ROWS = 2_000

PROVENANCE_MEANING = {
    "measured": "measured on this device by windtunnel validate",
    "published": "a measurement that others published",
    "datasheet": "vendor datasheet, or a source that cites it",
    "assumed": "an assumption with a stated range, because no value is published",
}
PROVENANCE_MARK = {"measured": "●", "published": "◐", "datasheet": "○", "assumed": "▲"}

MODEL_BASIS = {
    "measured": "measurements of this SKU",
    "transfer": "measurements of related SKUs",
    "formula": "formula and published constants",
}


def provenance_section(result: RunResult) -> Markup:
    """Return every input of the device models, by device, and how many there are of each provenance."""
    rows = result.provenance
    if not rows:
        return page.section(
            "provenance", "Provenance of the inputs", page.hint("This run used no input of a device model.")
        )
    counts = {word: sum(row.provenance == word for row in rows) for word in PROVENANCES}
    devices: dict[str, list[InputRow]] = {}
    # The assumed inputs come first: a reader should doubt them first, and they must not be cut.
    ordered = sorted(rows, key=lambda row: -PROVENANCES.index(row.provenance))
    for row in ordered[:MAX_PROVENANCE_ROWS]:
        devices.setdefault(row.device, []).append(_input(row))
    groups = [
        InputGroup(name, devices[name], sum(row.word == "assumed" for row in devices[name]))
        for name in dict.fromkeys(row.device for row in rows)
        if name in devices
    ]
    kinds = [
        ProvenanceCount(
            word, PROVENANCE_MARK[word], counts[word], counts[word] / len(rows) * 100, PROVENANCE_MEANING[word]
        )
        for word in PROVENANCES
    ]
    assumed = counts["assumed"]
    cut = len(rows) - MAX_PROVENANCE_ROWS
    return page.section(
        "provenance",
        "Provenance of the inputs",
        page.prose(
            "A result is only as certain as its least certain input. "
            f"{assumed or 'None'} of {plural(len(rows), 'input')} {'is' if assumed < 2 else 'are'} assumed."
        ),
        page.provenance_table(kinds, groups),
        contexts_table(result.contexts),
        page.hint(f"{cut} more inputs, none less certain than those shown, are in result.json.") if cut > 0 else None,
    )


def _input(row: ModelInput) -> InputRow:
    source = row.source or ""
    return InputRow(
        parameter=row.parameter,
        value=quantity_in_unit(row.value, row.unit),
        word=row.provenance,
        mark=PROVENANCE_MARK[row.provenance],
        range=exact_range(row.low, row.high, row.unit),
        source=source,
        # Only a plain web address becomes a link: anything else, such as javascript:, stays text.
        link=source if re.fullmatch(r"https?://[^\s\"'<>]+", source) else None,
        short=_shortened(source),
        reason=row.reason or "",
    )


def _shortened(source: str) -> str:
    """Return a web address without its scheme and without its middle."""
    text = re.sub(r"^https?://(www\.)?", "", source)
    return text if len(text) <= 48 or " " in text else f"{text[:22]}…{text[-24:]}"


def accuracy_section(result: RunResult) -> Markup | None:
    """Return the accuracy of each operation's model, by device."""
    devices: dict[str, list[list[str]]] = {}
    for row in result.model_accuracy:
        accuracy = row.accuracy
        width = f"±{share(accuracy.interval_half_width)}" if is_finite(accuracy.interval_half_width) else NOTHING
        if is_finite(accuracy.error_factor):
            width = f"×/÷ {number(accuracy.error_factor)}"
        groups = accuracy.cross_validation_groups
        devices.setdefault(row.device, []).append(
            [
                accuracy.op if row.part_of is None else f"{accuracy.op} (in a {row.part_of})",
                MODEL_BASIS[accuracy.basis],
                share(accuracy.cross_validation_error),
                share(accuracy.interval_coverage),
                width,
                accuracy.text + (f"; cross-validated by {groups}" if groups else ""),
            ]
        )
    if not devices:
        return None
    header = ["Operation", "Basis", "Cross-validation error", "Interval coverage", "90% interval", "Model"]
    return page.section(
        "models",
        "Accuracy of the device models",
        page.prose(
            "A simulated time is as accurate as the model of the device. The cross-validation error is the mean "
            "absolute relative error on measurements that the fit did not use. Without such measurements, only the "
            "expected range of the error is known."
        ),
        *(page.table(device, header, rows, words=(0, 1, 5), style="accuracy") for device, rows in devices.items()),
    )
