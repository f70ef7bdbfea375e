"""GEMM on a device with no measurement or few: base numbers carried over by datasheet, residual by a Gaussian process.

    python benchmarks/accuracy/gemm_transfer.py ../shared/truth [20] [100] [500]

leaves each device out. For the held device only the other devices' fits enter: their base numbers, their residual, and
a kernel learned on episodes in which each of them in turn plays the new device. torch and lightgbm learn; what answers
(``carried``, ``similarity``, ``inputs``, ``Process``) is NumPy alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fit_gemm as fg
import gemm_base as gb
import numpy as np
import split as sp

CYCLES = (2, 4, 5, 9)
"""Numbers that are latencies inside the device (floor, wave, step over k, split): carried over in clock cycles."""
DRAW = 3
"""Cache bytes per unit and clock: carried over per FLOP of a unit's clock (a balanced design scales both)."""
SHRINK = 0.75
"""Part of the experts' residual that is believed within a memory class; none across classes."""
GDDR = ("l40s", "arc-pro-b60", "rtx-pro-6000-server")
OTHER_VENDOR = ("arc-pro-b60",)
PENALTY = {20: 0.1, 100: 0.03, 500: 0.01}


def flops_per_clock(s: sp.Sheet) -> float:
    """Matrix FLOPs of one unit in a clock, bfloat16."""
    return s.peak["bfloat16"] / (s.units * s.clock)


def carried(numbers: np.ndarray, known: sp.Sheet, new: sp.Sheet) -> np.ndarray:
    """Base numbers of a known device restated for a new one."""
    out = np.array(numbers, dtype=float)
    out[list(CYCLES)] *= known.clock / new.clock
    out[DRAW] *= flops_per_clock(new) / flops_per_clock(known)
    return out


def similarity(known: Sequence[str], new: str) -> np.ndarray:
    """Weights (sum 1): 1/e per octave of FLOPs per unit and clock, 0.3 across memory classes, 0.5 across vendors."""
    w = []
    for name in known:
        apart = np.log2(flops_per_clock(sp.SHEETS[name]) / flops_per_clock(sp.SHEETS[new]))
        memory = 0.3 if (name in GDDR) != (new in GDDR) else 1.0
        w.append(np.exp(-abs(apart)) * memory * (0.5 if (name in OTHER_VENDOR) != (new in OTHER_VENDOR) else 1.0))
    return np.array(w) / np.sum(w)


def prior_numbers(own: Mapping[str, np.ndarray], known: Sequence[str], new: str) -> np.ndarray:
    """Weighted geometric mean of the known devices' carried numbers."""
    w = similarity(known, new)
    logs = [np.log(carried(own[i], sp.SHEETS[i], sp.SHEETS[new])) for i in known]
    return np.asarray(np.exp(np.einsum("i,ij->j", w, np.array(logs))))


def belief(known: Sequence[str], new: str) -> np.ndarray:
    """What each expert's residual is multiplied by with no measurement."""
    same = np.array([(i in GDDR) == (new in GDDR) for i in known], dtype=float)
    return SHRINK * similarity(known, new) * same


@dataclass(frozen=True)
class Inputs:
    """Rows: features (N, 52), log sizes (N, 3), experts' weighted mean (N,) and each about it (N, E)."""

    x: np.ndarray
    size: np.ndarray
    expert: np.ndarray
    apart: np.ndarray


def inputs(t: sp.Table, numbers: np.ndarray, experts: np.ndarray, weights: np.ndarray) -> Inputs:
    """``experts`` (N, E): each expert's log(time / base) at the new device's own features."""
    e = np.clip(experts, -0.6, 0.6)
    size = np.stack([np.log2(t.m), np.log2(t.n), np.log2(t.k)], 1) / 2.0
    mean = e @ weights
    return Inputs(fg.inputs(t, numbers)[0], size, mean, e - mean[:, None])


@dataclass(frozen=True)
class Process:
    """Gaussian process on log(time / base): level + smooth in log sizes + rough in features and in sizes + experts.

    Logarithms of scales: ``features`` (52,), ``wide`` and ``narrow`` (3,) multiply inputs; ``amplitudes`` (6,);
    ``noise``. ``expert`` is the factor on the experts' mean. ``mean`` and ``spread`` (52,) standardise features.
    """

    mean: np.ndarray
    spread: np.ndarray
    features: np.ndarray
    wide: np.ndarray
    narrow: np.ndarray
    amplitudes: np.ndarray
    noise: float
    expert: float

    def kernel(self, a: Inputs, b: Inputs) -> np.ndarray:
        s = np.exp(2.0 * self.amplitudes)

        def apart(u: np.ndarray, v: np.ndarray, scale: np.ndarray) -> np.ndarray:
            u, v = u * np.exp(scale), v * np.exp(scale)
            return np.maximum((u * u).sum(1)[:, None] + (v * v).sum(1)[None] - 2.0 * u @ v.T, 0.0)

        def matern(d: np.ndarray) -> np.ndarray:
            r = np.sqrt(3.0 * d + 1e-8)
            return np.asarray((1.0 + r) * np.exp(-r))

        fa, fb = (a.x - self.mean) / self.spread, (b.x - self.mean) / self.spread
        out = (
            s[0] + s[1] * np.exp(-0.5 * apart(a.size, b.size, self.wide)) + s[2] * matern(apart(fa, fb, self.features))
        )
        out += s[3] * matern(apart(a.size, b.size, self.narrow)) + s[4] * np.outer(a.expert, b.expert)
        return np.asarray(out + s[5] * a.apart @ b.apart.T)

    def posterior(self, known: Inputs, r: np.ndarray, asked: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread of one more measurement at ``asked``. The mean uses the learned scales; the spread's are
        rescaled on the measurements (amplitudes and noise together a factor 0.7 to 2 each, by likelihood)."""
        middle = np.median(r)
        r = np.clip(r, middle - 0.6, middle + 0.6) - self.expert * known.expert
        own, cross = self.kernel(known, known), self.kernel(asked, known)
        eye = np.eye(len(r))
        mean = self.expert * asked.expert + cross @ np.linalg.solve(own + np.exp(2.0 * self.noise) * eye, r)
        best = (-np.inf, 0.0, 0.0)
        for a in (-0.35, 0.0, 0.35, 0.7):
            for b in (-0.35, 0.0, 0.35, 0.7):
                low = np.linalg.cholesky(np.exp(2.0 * a) * own + np.exp(2.0 * (self.noise + b)) * eye)
                half = np.linalg.solve(low, r)
                score = -0.5 * half @ half - np.log(np.diag(low)).sum() - 4.0 * (a * a + b * b)
                best = max(best, (float(score), a, b))
        _, a, b = best
        noise = np.exp(2.0 * (self.noise + b))
        low = np.linalg.cholesky(np.exp(2.0 * a) * own + noise * eye)
        reduced = np.linalg.solve(low, np.exp(2.0 * a) * cross.T)
        s = np.exp(2.0 * self.amplitudes)
        prior = s[:4].sum() + s[4] * asked.expert**2 + s[5] * (asked.apart**2).sum(1)
        variance = np.exp(2.0 * a) * prior - (reduced**2).sum(0)
        return mean, np.sqrt(np.maximum(variance, 0.0) + noise)


Episode = tuple[Inputs, np.ndarray, Inputs, np.ndarray]


def learn_kernel(episodes: Sequence[Episode], steps: int = 500, seed: int = 0) -> Process:
    """Scales of least error on the asked rows of episodes (known rows, residual, asked rows, residual)."""
    import torch

    rng, kind = np.random.default_rng(seed), torch.float64
    x = np.concatenate([e[2].x for e in episodes])
    mean, spread = x.mean(0), x.std(0) + 1e-6
    f, level = x.shape[1], -0.5 * np.log(x.shape[1]) - 0.9

    def parameter(v: object) -> torch.Tensor:
        return torch.tensor(v, dtype=kind, requires_grad=True)

    lf, wide, narrow = parameter(np.full(f, level)), parameter([-0.7] * 3), parameter([0.3] * 3)
    amp, noise, expert = parameter([-2.0, -2.0, -2.0, -3.0, -1.0, -1.0]), parameter(-2.7), parameter(0.5)
    everything = [lf, wide, narrow, amp, noise, expert]

    def tensors(a: Inputs) -> list[torch.Tensor]:
        return [torch.tensor(v) for v in ((a.x - mean) / spread, a.size, a.expert, a.apart)]

    def kernel(a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
        s = torch.exp(2 * amp)

        def apart(u: torch.Tensor, v: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            u, v = u * scale.exp(), v * scale.exp()
            return ((u * u).sum(1)[:, None] + (v * v).sum(1)[None] - 2 * u @ v.T).clamp(min=0)

        def matern(d: torch.Tensor) -> torch.Tensor:
            r = torch.sqrt(3 * d + 1e-8)
            return (1 + r) * torch.exp(-r)

        out = s[0] + s[1] * torch.exp(-0.5 * apart(a[1], b[1], wide)) + s[2] * matern(apart(a[0], b[0], lf))
        return out + s[3] * matern(apart(a[1], b[1], narrow)) + s[4] * a[2][:, None] * b[2] + s[5] * a[3] @ b[3].T

    ready = []
    for known, r, asked, q in episodes:
        r = np.clip(r, np.median(r) - 0.6, np.median(r) + 0.6)
        ready.append((tensors(known), torch.tensor(r), tensors(asked), torch.tensor(q)))
    optimiser = torch.optim.Adam(everything, lr=0.04)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.04, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        c, r, t, q = ready[rng.integers(len(ready))]
        pick = torch.tensor(rng.choice(len(q), 300, replace=False))
        t, q = [v[pick] for v in t], q[pick]
        n2, s = torch.exp(2 * noise), torch.exp(2 * amp)
        low = torch.linalg.cholesky(kernel(c, c) + n2 * torch.eye(len(r), dtype=kind))
        cross = kernel(t, c)
        got = expert * t[2] + (cross @ torch.cholesky_solve((r - expert * c[2])[:, None], low))[:, 0]
        reduced = torch.linalg.solve_triangular(low, cross.T, upper=False)
        prior = s[:4].sum() + s[4] * t[2] ** 2 + s[5] * (t[3] ** 2).sum(1)
        variance = (prior - (reduced**2).sum(0)).clamp(min=1e-6) + n2
        error = (q - got).abs().clamp(max=1.0)
        loss = 20 * error.mean() + 0.5 * (0.5 * torch.log(variance) + 1.414 * error / torch.sqrt(variance)).mean()
        loss = loss + 0.02 * ((lf - level) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    lf, wide, narrow, amp, noise, expert = (v.detach().numpy() for v in everything)
    return Process(mean, spread, lf, wide, narrow, amp, float(noise), float(expert))


def main() -> None:
    import lightgbm

    data, names = sp.read(Path(sys.argv[1])), [*sp.FOUR, "arc-pro-b60"]
    tables = {s: data[s, "bfloat16", "burst"] for s in names}
    own, forest = {}, {}
    for s, t in tables.items():
        own[s] = gb.fit([t], penalty=0.02)
        x, log_base, _ = fg.inputs(t, own[s])
        kind = {
            "objective": "l1",
            "num_leaves": 15,
            "learning_rate": 0.08,
            "n_estimators": 200,
            "feature_fraction": 0.5,
        }
        forest[s] = lightgbm.LGBMRegressor(**kind, min_child_samples=20, n_jobs=1, verbose=-1, seed=0).fit(
            x, np.clip(np.log(t.seconds) - log_base, -0.8, 0.8)
        )

    def experts(t: sp.Table, numbers: np.ndarray, known: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        x, log_base, _ = fg.inputs(t, numbers)
        return np.stack([forest[i].predict(x) for i in known], 1), log_base

    def nothing(new: str, known: Sequence[str], t: sp.Table) -> tuple[np.ndarray, np.ndarray]:
        e, log_base = experts(t, prior_numbers(own, known, new), known)
        return log_base, log_base + e @ belief(known, new)

    def episode(new: str, known: Sequence[str], count: int, seed: int, asked: int) -> tuple[Episode, np.ndarray]:
        t = tables[new]
        drawn = sp.few(count, t, seed)
        rest = np.setdiff1d(np.arange(len(t)), drawn)
        rest = np.random.default_rng(seed).choice(rest, min(asked, len(rest)), replace=False)
        some, others, w = t.take(drawn), t.take(rest), similarity(known, new)
        p = gb.fit([some], start=prior_numbers(own, known, new), penalty=PENALTY[count], most=500)
        (es, ls), (eq, lq) = experts(some, p, known), experts(others, p, known)
        r, q = np.log(some.seconds) - ls, np.log(others.seconds) - lq
        return (inputs(some, p, es, w), r, inputs(others, p, eq, w), q), lq

    print("no measurement")
    spread = {}
    for new in names:
        known = [s for s in sp.FOUR if s != new]
        # each known device left out of the others; 95%, not 90%, because three devices are a small sample of devices
        score = []
        for other in known:
            rest = [s for s in known if s != other]
            score.append(np.abs(nothing(other, rest, tables[other])[1] - np.log(tables[other].seconds)))
        spread[new] = float(np.quantile(np.concatenate(score), 0.95))
        t = tables[new]
        bare, full = nothing(new, known, t)
        width = spread[new] * (1.0 if new not in GDDR else 1.25)
        inside, half = np.mean(np.abs(full - np.log(t.seconds)) <= width), np.sinh(width)
        print("  " + sp.line(f"{new} base", t.seconds, np.exp(bare)))
        print("  " + sp.line(f"{new} base, experts", t.seconds, np.exp(full)) + f" inside {inside:.1%} half {half:.0%}")
    for count in (int(v) for v in sys.argv[2:]):
        print(f"{count} measurements", flush=True)
        for new in names:
            known = [s for s in sp.FOUR if s != new]
            learned = []
            for other in known:
                rest = [s for s in known if s != other]
                learned += [episode(other, rest, count, 100 + s, 1200)[0] for s in range(4)]
            process = learn_kernel(learned)
            rows = []
            for seed in range(3):
                (some, r, others, q), _ = episode(new, known, count, seed, 2500)
                mean, sd = process.posterior(some, r, others)
                error = np.abs(np.expm1(mean - q))
                rows.append([np.mean(np.abs(np.expm1(-q))), error.mean(), np.mean(np.abs(mean - q) <= 1.75 * sd)])
                rows[-1].append(np.median(np.sinh(1.75 * sd)))
            b, e, inside, half = np.mean(rows, axis=0)
            print(f"  {new:16s} base {b:.2%} process {e:.2%} inside {inside:.1%} half-width {half:.1%}", flush=True)


if __name__ == "__main__":
    main()
