"""Arrays in Numba's kernels: views, slices, other types, reductions and text; `numba_language.py` runs them."""

import math

import numpy as np
from numba import cuda
from numba.cuda import float32, float64
from numba.cuda.core import errors

FACTOR = 3


def program_shapes_and_views() -> None:
    @cuda.jit
    def kernel(a, shape, got, bits, halves):
        i = cuda.grid(1)
        b = a.reshape(shape)
        shared = cuda.shared.array((2, 6), float64)
        flat = shared.reshape(12)
        flat[i] = a.ravel()[i]
        cuda.syncthreads()
        got[i] = b[i // b.shape[1], i % b.shape[1]] * 100 + shared[i // 6, i % 6]
        bits[i] = a.view(np.int64)[i // 4, i % 4]
        halves[i] = a.view(np.int32)[i // 4, 2 * (i % 4) + 1]

    a = np.arange(12, dtype=np.float64).reshape(3, 4) + 0.5
    got, bits, halves = np.zeros(12), np.zeros(12, np.int64), np.zeros(12, np.int32)
    kernel[1, 12](a, (-1, 6), got, bits, halves)
    assert (got == a.ravel() * 101).all()
    assert (bits == a.view(np.int64).ravel()).all()
    assert (halves == a.view(np.int32).ravel()[1::2]).all()


def program_a_variable_is_one_of_several_arrays() -> None:
    @cuda.jit
    def swapped(a, b, n):
        i = cuda.grid(1)
        src, dst = a, b
        for _ in range(n):
            dst[i] = src[i] * 2 + 1
            src, dst = dst, src

    @cuda.jit(device=True)
    def pick(first, x, y):
        if first:
            return x
        return y

    @cuda.jit
    def others(a, b, out, one, two, z):
        i = cuda.grid(1)
        out[0, i] = (a, b)[i % 2][i]
        chosen = a[2:] if i < 3 else b
        out[1, i] = chosen[0] + chosen.size
        out[2, i] = chosen[1:3].sum()
        for value in chosen:
            out[3, i] += value
        cuda.atomic.add(one if i % 3 == 0 else two, i % 2, i)
        w = z
        if i % 2:
            w = pick(i > 2, z, w)
        w[i] = w[i] * (1j if i else 2)

    @cuda.jit
    def summed(x, out):
        s1, s2 = cuda.shared.array(64, float64), cuda.shared.array(64, float64)
        t = cuda.threadIdx.x
        s1[t] = x[t]
        src, dst, step = s1, s2, 1
        while step < 64:
            cuda.syncthreads()
            dst[t] = src[t] + src[t - step] if t >= step else src[t]
            src, dst = dst, src
            step *= 2
        out[t] = src[t]

    a, b = np.arange(6.0), np.zeros(6)
    swapped[1, 6](a, b, 3)
    assert a.tolist() == [3 + 4 * i for i in range(6)] and b.tolist() == [7 + 8 * i for i in range(6)]
    i, a = np.arange(6), np.arange(6.0)
    out, one, two, z = np.zeros((4, 6)), np.zeros(2, np.int32), np.zeros(2, np.int32), np.arange(6) + 1j
    others[1, 6](a, a * 10, out, one, two, z)
    assert out.tolist() == [
        np.where(i % 2, 10 * a, a).tolist(), [6] * 6, [7] * 3 + [30] * 3, [14] * 3 + [150] * 3
    ]  # fmt: skip
    assert one.tolist() == [0, 3] and two.tolist() == [6, 6] and (z == (i + 1j) * np.where(i, 1j, 2)).all()
    summed[1, 64](x := np.arange(64.0), out := np.zeros(64))
    assert (out == x.cumsum()).all()


def program_arrays_are_unpacked_and_iterated_over() -> None:
    @cuda.jit
    def k(a, c, out, rgb, ints, z):
        i = cuda.grid(1)
        if i == 0:
            for x, y in np.ndindex(a.shape):
                out[0] += a[x, y] * (x + 10 * y)
            for x, y in np.ndindex(2, 3):
                out[1] += a[x, y]
            for ij, v in np.ndenumerate(a):
                out[2] += v * ij[0] + a[ij]
            for v in a.flat:
                out[3] += v
            for v in a.T.flat:
                out[10] = v
            out[4] = a.flat[5]
            out[5] = a.argmax() + 100 * a[1].argmin() + 1000 * np.argmax(a[:, 1])
            r, g, b = rgb[i + 1]
            out[6] = r * 100 + g * 10 + b
            (p, q), s = rgb[0, :2], rgb[0, 2]
            out[7] = p + q + s
            a2 = a[:, None, 1]
            out[8] = a2[2, 0] + a2.shape[1]
            for (n,), v in np.ndenumerate(ints):
                ints[n] = v + n
            for d1, d2 in zip(ints, rgb[0]):  # noqa: B905  kernels have no such argument
                out[9] += d1 * d2
            z[0] = c.sum()
            z[1] = c.mean()
            z[2] = c.prod()
            out[11] = ints.argmax()

    a = np.arange(12.0).reshape(3, 4)
    a[1, 2] = 50
    out = np.zeros(12)
    rgb = np.arange(9).reshape(3, 3) + 1
    ints = np.arange(5)
    c = np.arange(1, 5) + 1j
    z = np.zeros(3, complex)
    k[1, 1](a, c, out, rgb, ints, z)
    w = np.zeros(12)
    w[0] = sum(a[x, y] * (x + 10 * y) for x, y in np.ndindex(a.shape))
    w[1] = a[:2, :3].sum()
    w[2] = (a.sum(1) * np.arange(3)).sum() + a.sum()
    w[3] = a.sum()
    w[4] = 5
    w[5] = 6 + 0 + 2000
    w[6] = 456
    w[7] = 6
    w[8] = a[2, 1] + 1
    assert (ints == 2 * np.arange(5)).all()
    w[9] = (ints[:3] * rgb[0]).sum()
    w[10] = 11
    w[11] = 4
    assert (out == w).all(), (out, w)
    assert np.allclose(z, [c.sum(), c.mean(), c.prod()])


def program_memory_is_seen_as_another_type() -> None:
    from numba import complex64

    @cuda.jit
    def views(c, f, out, zs, d2):
        i = cuda.grid(1)
        v = c.view(np.float64)
        out[0, i] = v[2 * i] + 10 * v[2 * i + 1]
        out[1, i] = c[i].real + v.size + c.real[i] * 0 + c.imag[i]
        z = f.view(np.complex128)
        zs[i] = z[i] * 1j
        z2 = d2.view(np.complex64)
        out[2, i] = z2[1, i].imag + z2.shape[1]
        v[2 * i] = i
        c[i] *= 2
        sh = cuda.shared.array((2, 4), complex64)
        w = sh.view(np.float32)
        w[1, 2 * i] = i
        w[1, 2 * i + 1] = -i
        out[3, i] = sh[1, i].real - sh[1, i].imag
        flat = sh.reshape(8)
        out[4, i] = flat[4 + i].real

    @cuda.jit
    def complex_reshape(c, out):
        i = cuda.grid(1)
        out[i] = c.reshape(2, 2)[i // 2, i % 2] + c.ravel()[i]
        c.reshape(4)[i] = 1j

    @cuda.jit
    def float_max(x, m, n):
        i = cuda.grid(1)
        cuda.atomic.max(m.view(np.int32), 0, x.view(np.int32)[i])
        cuda.atomic.add(n.view(np.int32), 1, 5)
        if i == 0:
            m[1] = x[0] + 0.5

    @cuda.jit
    def unsigned(a, out):
        i = cuda.grid(1)
        out[i] = cuda.atomic.add(a.view(np.uint32), 0, 3)

    @cuda.jit
    def both_words(a):
        cuda.atomic.add(a.view(np.int32), 0, 1)
        cuda.atomic.add(a.view(np.int32), 1, 2)

    c = np.arange(4) + 1j * np.arange(4)[::-1]
    f = np.arange(8.0)
    out = np.zeros((5, 4))
    zs = np.zeros(4, complex)
    d2 = np.arange(16, dtype=np.float32).reshape(2, 8)
    views[1, 4](c, f, out, zs, d2)
    C = np.arange(4) + 1j * np.arange(4)[::-1]
    assert (out[0] == C.real + 10 * C.imag).all()
    assert (out[1] == C.real + 8 + C.imag).all(), out[1]
    assert (zs == f.view(complex) * 1j).all()
    assert (out[2] == d2.view(np.complex64)[1].imag + 4).all()
    assert (c == 2 * (np.arange(4) + 1j * C.imag)).all()
    assert (out[3] == 2 * np.arange(4)).all() and (out[4] == np.arange(4)).all()
    c = np.arange(4) + 0.5j
    o = np.zeros(4, complex)
    complex_reshape[1, 4](c, o)
    assert (o == 2 * (np.arange(4) + 0.5j)).all() and (c == 1j).all()
    x = np.array([3, 1, 7.5, 2], np.float32)
    m = np.zeros(2, np.float32)
    n = np.zeros(2, np.float32)
    float_max[1, 4](x, m, n)
    assert m[0] == 7.5 and m[1] == 3.5 and n.view(np.int32)[1] == 20
    a = np.array([-7], np.int32)
    o = np.zeros(4, np.uint32)
    unsigned[1, 4](a, o)
    assert a[0] == 5 and set(o) == {np.uint32(-7 + 2**32 + 3 * k & 0xFFFFFFFF) for k in range(4)}
    b = np.zeros(2, np.int64)
    both_words[1, 4](b)
    assert b[0] == 4 + (8 << 32)


def program_match_global_and_views_of_other_shapes() -> None:
    @cuda.jit
    def k(a, op, d2, b):
        global FACTOR  # noqa: PLW0602
        i = cuda.grid(1)
        match op[i]:
            case 0:
                a[i] = 1
            case 1 | 2 if i != 1:
                a[i] = 2 * FACTOR
            case 7:
                return
            case other:
                a[i] = other
        row = d2[i] if i < 2 else b
        a[i] += row[1]
        m = d2.T if i % 2 else d2
        a[i] += m[0, 1]

    a = np.zeros(5)
    d2 = np.array([[10.0, 20, 30], [40, 50, 60], [7, 8, 9]])
    b = np.array([0, 1000.0])
    k[1, 5](a, np.array([0, 1, 2, 5, 7]), d2, b)
    assert a.tolist() == [1 + 20 + 20, 1 + 50 + 40, 6 + 1000 + 20, 5 + 1000 + 40, 0], a


def program_dynamic_memory_of_two_types() -> None:
    @cuda.jit
    def kernel(got):
        i = cuda.grid(1)
        words, bytes_ = cuda.shared.array(0, float32), cuda.shared.array(0, np.uint8)
        words[i] = i + 0.5
        cuda.syncthreads()
        got[i] = bytes_[4 * i + 3]

    got = np.zeros(8, np.int32)
    kernel[1, 8, 0, 32](got)
    assert (got == (np.arange(8) + 0.5).astype(np.float32).view(np.uint8)[3::4]).all()


def program_reductions() -> None:
    arrays = (np.array([1.0, -2.0, math.nan, 4.0]), np.array([math.inf, 3.0]), np.array([0.0, -0.0]))

    @cuda.jit
    def kernel(got):
        row = 0
        for a in cuda.literal_unroll(arrays):
            got[row, 0], got[row, 1], got[row, 2] = a.sum(), np.nanmax(a), np.mean(a)
            got[row, 3], got[row, 4], got[row, 5] = np.std(a), np.any(a), np.count_nonzero(a)
            row += 1  # noqa: SIM113  kernels have literal_unroll without enumerate

    got = np.zeros((3, 6))
    kernel[1, 1](got)
    with np.errstate(all="ignore"):
        wanted = [[a.sum(), np.nanmax(a), a.mean(), a.std(), a.any(), np.count_nonzero(a)] for a in arrays]
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


def program_text_and_alignment() -> None:
    @cuda.jit
    def kernel(a, r):
        a[cuda.grid(1)] = "XYZ"
        r[cuda.grid(1)].name = b"AB"

    a, r = np.full(3, "longer", "<U8"), np.zeros(3, np.dtype([("x", np.int32), ("name", "S4")]))
    kernel[1, 2](a, r)
    assert list(a) == ["XYZ", "XYZ", "longer"] and list(r["name"]) == [b"AB", b"AB", b""]

    @cuda.jit
    def misaligned(r):
        r[0].b = 1

    try:
        misaligned[1, 1](np.zeros(1, np.dtype([("a", np.int32), ("b", np.float64)])))
    except errors.TypingError as error:
        assert "of type float64 is not aligned" in str(error)
    else:
        raise AssertionError("an unaligned field was written")


def program_arrays_of_the_device_from_outside() -> None:
    outside = cuda.to_device(np.arange(4.0))

    @cuda.jit
    def kernel():
        outside[cuda.grid(1)] *= 2

    kernel[1, 4]()
    kernel[1, 4]()
    assert (outside.copy_to_host() == np.arange(4.0) * 4).all()


def program_slices_and_items_of_before() -> None:
    """A slice stays where it is when its index changes, and a loop over a tuple has the items of before."""

    def steps(a, got):
        k = 0
        row = a[2]
        while k < 3:
            row[0] += 1
            row = a[k]
            k += 1
        row[1] += 10
        part = a[0, 0:2]
        for j in range(4):
            part[1] += 7
            low = j
            part = a[low % 3, low : low + 2]
        part[0] -= 1
        for e in (a[1, 0], a[1, 1]):
            a[1, 1] = 50
            got[0] += e
        for q, e in enumerate((a[1, 1], a[1, 2])):
            a[1, 2] = 60
            got[1] += e * (q + 1)
        one, other = a[0], a[1]
        one, other = other, one
        one[0], other[0] = 77, 88

    @cuda.jit
    def kernel(a, got):
        inner(a, got)

    inner = cuda.jit(device=True)(steps)
    a, got = np.arange(20).reshape(4, 5), np.zeros(2, np.int64)
    wanted_a, wanted = a.copy(), got.copy()
    kernel[1, 1](a, got)
    steps(wanted_a, wanted)
    assert (a == wanted_a).all() and (got == wanted).all(), (a, got)


def program_slices_with_any_step() -> None:
    @cuda.jit
    def kernel(a, got, step):
        part = a[::step]
        got[0], got[1], got[2] = part.size, part.sum(), a[6:1:step].sum()
        part[0] = 100

    for step in (1, 3, -1, -2):
        a, got = np.arange(8), np.zeros(3, np.int64)
        kernel[1, 1](a, got, step)
        b = np.arange(8)
        assert list(got) == [b[::step].size, b[::step].sum(), b[6:1:step].sum()]
        assert a[::step][0] == 100
