"""Prototype of the shipped GEMM model: NumPy alone answers from ``artefacts/gemm.npz``.

    python benchmarks/accuracy/gemm_model.py ../shared/truth train    (torch: writes the artefact)
    python benchmarks/accuracy/gemm_model.py ../shared/truth check    (NumPy: size, speed, monotonicity, agreement)

Arrays: ``tasks`` (names sku/dtype/clock), ``parameters`` (tasks x 11) and, for every member i of the ensemble,
``mean_i, spread_i, w0_i, b0_i, v0_i, g0_i, w1_i, ... out_i, level_i, embedding_i``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import split as sp
from gemm_base import features, fit

ARTEFACT = Path(__file__).parent / "artefacts" / "gemm.npz"


class Model:
    """Seconds of products on the tasks of an artefact."""

    def __init__(self, path: Path = ARTEFACT) -> None:
        with np.load(path) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.tasks = [str(name) for name in self.arrays["tasks"]]
        self.members = sum(name.startswith("out_") for name in self.arrays)

    def expert(self, x: np.ndarray, task: int) -> np.ndarray:
        """Mean over the ensemble of log(time / base) as the network of one task gives it."""
        total = np.zeros(len(x))
        for i in range(self.members):
            a = {name: self.arrays[f"{name}_{i}"].astype(np.float32) for name in ("mean", "spread", "out", "level")}
            e = self.arrays[f"embedding_{i}"][task].astype(np.float32)
            h = ((x - a["mean"]) / a["spread"]).astype(np.float32)
            for layer in range(2):
                w, b, v, g = (self.arrays[f"{part}{layer}_{i}"].astype(np.float32) for part in "wbvg")
                z = h @ (w * np.exp(np.clip(e @ g, -2.0, 2.0))) + (b + e @ v)
                h = z / (1.0 + np.exp(-np.clip(z, -60.0, 60.0)))
            total += h @ a["out"] + a["level"][task]
        return total / self.members

    def seconds(self, t: sp.Table) -> np.ndarray:
        task = self.tasks.index(f"{t.sku}/{t.dtype}/{t.clock}")
        x, log_base = features(t, self.arrays["parameters"][task])
        return np.exp(log_base + self.expert(x, task))


def train_artefact(folder: Path, members: int = 3, epochs: int = 30) -> None:
    from gemm_experiments import train

    data = sp.read(folder)
    keys, tables = list(data), list(data.values())
    parameters = [fit([t]) for t in tables]
    arrays: dict[str, np.ndarray] = {"tasks": np.array(["/".join(q) for q in keys]), "parameters": np.array(parameters)}
    for i in range(members):
        _, net, mean, spread = train(tables, parameters, seed=i, epochs=epochs)
        state = {name: value.detach().numpy() for name, value in net.named_parameters()}
        arrays |= {f"mean_{i}": mean.astype(np.float32), f"spread_{i}": spread.astype(np.float32)}
        arrays |= {f"{name}_{i}": state[name] for name in ("out", "level", "embedding")}
        for layer in range(2):
            for short, long in zip("wbvg", ("weight", "bias", "shift", "scale"), strict=True):
                arrays[f"{short}{layer}_{i}"] = state[f"{long}.{layer}"]
        print(f"member {i} trained", flush=True)
    ARTEFACT.parent.mkdir(exist_ok=True)
    np.savez_compressed(ARTEFACT, **arrays)


def check(folder: Path) -> None:
    """Size, speed and monotonicity. No accuracy is reported: these rows were fitted."""
    model, data = Model(), sp.read(folder)
    print(f"{ARTEFACT.name}: {ARTEFACT.stat().st_size / 1024:.0f} KiB, {len(model.tasks)} tasks, {model.members} nets")
    rng = np.random.default_rng(1)
    t = next(t for q, t in data.items() if q == ("h100-sxm-80gb", "bfloat16", "burst"))
    many = t.take(rng.choice(len(t), 100_000))
    began = time.perf_counter()
    model.seconds(many)
    print(f"100,000 rows: {time.perf_counter() - began:.2f} s")
    size = np.round(np.exp(rng.uniform(0.0, np.log(60000.0), (3, 20_000))))
    free = sp.Table(t.sku, t.dtype, t.clock, size[0], np.maximum(size[1], 32), np.maximum(size[2], 32), size[0])
    for i, name in enumerate("mnk"):
        for factor in (1.1, 2.0):
            parts = [free.m, free.n, free.k]
            parts[i] = np.ceil(parts[i] * factor)
            drop = np.log(model.seconds(free) / model.seconds(sp.Table(*(t.sku, t.dtype, t.clock), *parts, free.m)))
            print(
                f"{name} x {factor}: cheaper in {np.mean(drop > 1e-4):.2%}, by over 1% in {np.mean(drop > 0.01):.2%}, "
                f"worst {np.expm1(drop.max()):.1%}"
            )


if __name__ == "__main__":
    (train_artefact if sys.argv[2] == "train" else check)(Path(sys.argv[1]))
