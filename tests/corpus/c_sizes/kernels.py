"""Kernels of two and three dimensions whose arguments are not stated: `check` has to make up sizes that fit together.

They were written before `check` did so. Each is guarded correctly for every size; `MISTAKES` are changes that make five
of them access an element outside of a buffer, or of a row, for sizes that the block does not divide.
"""

from __future__ import annotations

from typing import NamedTuple


class Sized(NamedTuple):
    """A kernel and its launch.

    Attributes:
        source: CUDA C, or OpenCL C if it has a ``__kernel``.
        grid: The grid, as ``--grid`` takes it.
        block: The block.
    """

    source: str
    grid: str
    block: str


KERNELS = {
    "transpose": Sized(
        """
        __global__ void k(const float *in, float *out, int width, int height) {
            __shared__ float tile[16][17];
            int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
            if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
            __syncthreads();
            int tx = blockIdx.y * 16 + threadIdx.x, ty = blockIdx.x * 16 + threadIdx.y;
            if (tx < height && ty < width) out[ty * height + tx] = tile[threadIdx.x][threadIdx.y];
        }
        """,
        "3,2",
        "16,16",
    ),
    "stencil": Sized(
        """
        __global__ void k(const float *a, float *b, int nx, int ny) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            int j = blockIdx.y * blockDim.y + threadIdx.y;
            if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1)
                b[j * nx + i] = 0.25f * (a[j * nx + i - 1] + a[j * nx + i + 1] + a[(j - 1) * nx + i] + a[(j + 1) * nx + i]);
        }
        """,
        "2,4",
        "32,4",
    ),
    "convolution": Sized(
        """
        __global__ void k(const float *image, const float *weights, float *out, int w, int h, int radius) {
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            if (x >= w || y >= h) return;
            float sum = 0;
            for (int dy = -radius; dy <= radius; dy++)
                for (int dx = -radius; dx <= radius; dx++) {
                    int cx = min(max(x + dx, 0), w - 1), cy = min(max(y + dy, 0), h - 1);
                    sum += image[cy * w + cx] * weights[(dy + radius) * (2 * radius + 1) + dx + radius];
                }
            out[y * w + x] = sum;
        }
        """,
        "2,1",
        "8,4",
    ),
    "matrix product": Sized(
        """
        __global__ void k(const float *A, const float *B, float *C, int M, int N, int K) {
            int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
            if (row < M && column < N) {
                float sum = 0;
                for (int i = 0; i < K; i++) sum += A[row * K + i] * B[i * N + column];
                C[row * N + column] = sum;
            }
        }
        """,
        "2,3",
        "8,8",
    ),
    "tiled product": Sized(
        """
        #define T 8
        __global__ void k(const float *A, const float *B, float *C, int m, int n, int k) {
            __shared__ float a[T][T], b[T][T];
            int ty = threadIdx.y, tx = threadIdx.x, row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
            float sum = 0;
            for (int t = 0; t < (k + T - 1) / T; t++) {
                a[ty][tx] = row < m && t * T + tx < k ? A[row * k + t * T + tx] : 0;
                b[ty][tx] = col < n && t * T + ty < k ? B[(t * T + ty) * n + col] : 0;
                __syncthreads();
                for (int i = 0; i < T; i++) sum += a[ty][i] * b[i][tx];
                __syncthreads();
            }
            if (row < m && col < n) C[row * n + col] = sum;
        }
        """,
        "3,2",
        "8,8",
    ),
    "filter with a pitch": Sized(
        """
        __global__ void k(const unsigned char *in, unsigned char *out, int width, int height, int pitch) {
            int x = blockIdx.x * blockDim.x + threadIdx.x;
            int y = blockIdx.y * blockDim.y + threadIdx.y;
            if (x < width && y < height) {
                const unsigned char *line = in + y * pitch;
                out[y * pitch + x] = 255 - line[x];
            }
        }
        """,
        "2,4",
        "32,4",
    ),
    "batched": Sized(
        """
        __global__ void k(const float *in, const float *bias, float *out, int rows, int cols, int batch) {
            int c = blockIdx.x * blockDim.x + threadIdx.x;
            int r = blockIdx.y * blockDim.y + threadIdx.y;
            int b = blockIdx.z;
            if (c < cols && r < rows && b < batch) {
                int at = (b * rows + r) * cols + c;
                out[at] = in[at] + bias[c];
            }
        }
        """,
        "2,2,3",
        "16,8",
    ),
    "volume": Sized(
        """
        __global__ void k(const float *u, float *v, int dx, int dy, int dz) {
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            int z = blockIdx.z * blockDim.z + threadIdx.z;
            if (x >= dx || y >= dy || z >= dz) return;
            int stride = dx * dy, at = z * stride + y * dx + x;
            float sum = u[at];
            if (z > 0) sum += u[at - stride];
            if (z + 1 < dz) sum += u[at + stride];
            v[at] = sum;
        }
        """,
        "2,2,2",
        "8,4,2",
    ),
    "colour image": Sized(
        """
        __global__ void k(const unsigned char *rgb, unsigned char *grey, int w, int h) {
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            if (x < w && y < h) {
                int at = 3 * (y * w + x);
                grey[y * w + x] = (rgb[at] * 2 + rgb[at + 1] * 5 + rgb[at + 2]) / 8;
            }
        }
        """,
        "3,3",
        "16,8",
    ),
    "row sums": Sized(
        """
        __global__ void k(const float *m, float *sums, int ncols, int nrows) {
            __shared__ float part[4][32];
            int row = blockIdx.y * blockDim.y + threadIdx.y;
            float sum = 0;
            if (row < nrows) for (int c = threadIdx.x; c < ncols; c += blockDim.x) sum += m[row * ncols + c];
            part[threadIdx.y][threadIdx.x] = sum;
            __syncthreads();
            if (threadIdx.x == 0 && row < nrows) {
                for (int i = 1; i < 32; i++) sum += part[threadIdx.y][i];
                sums[row] = sum;
            }
        }
        """,
        "1,3",
        "32,4",
    ),
    "bilinear": Sized(
        """
        __global__ void k(const float *src, float *dst, int sw, int sh, int dw, int dh) {
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            if (x >= dw || y >= dh) return;
            float fx = (x + 0.5f) * sw / dw - 0.5f, fy = (y + 0.5f) * sh / dh - 0.5f;
            int x0 = max((int)floorf(fx), 0), y0 = max((int)floorf(fy), 0);
            int x1 = min(x0 + 1, sw - 1), y1 = min(y0 + 1, sh - 1);
            x0 = min(x0, sw - 1);
            y0 = min(y0, sh - 1);
            dst[y * dw + x] = 0.25f * (src[y0 * sw + x0] + src[y0 * sw + x1] + src[y1 * sw + x0] + src[y1 * sw + x1]);
        }
        """,
        "2,2",
        "8,8",
    ),
    "opencl blur": Sized(
        """
        __kernel void k(__global const float *in, __global float *out, const int columns, const int lines) {
            int x = get_global_id(0), y = get_global_id(1);
            if (x >= columns || y >= lines) return;
            float sum = 0;
            int n = 0;
            for (int j = y - 1; j <= y + 1; j++)
                for (int i = x - 1; i <= x + 1; i++)
                    if (i >= 0 && i < columns && j >= 0 && j < lines) { sum += in[j * columns + i]; n++; }
            out[y * columns + x] = sum / n;
        }
        """,
        "4,2",
        "8,8",
    ),
}
MISTAKES = {
    "transpose": ("tx < height && ty < width", "tx < width && ty < height"),
    "stencil": ("j < ny - 1)", "j < ny)"),
    "matrix product": ("row < M && column < N", "row <= M && column < N"),
    "filter with a pitch": ("x < width && y < height", "x < width"),
    "volume": ("z + 1 < dz", "z < dz"),
}
"""Of a kernel, the text to replace, and what makes it wrong: width and height exchanged, a guard that lacks or lets one
more through."""
INDICES = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y"
LATER: dict[str, tuple[str, bool]] = {
    "border": (
        """
        __global__ void k(const float *in, float *out, int width, int border) { INDICES;
        if (y < border) out[y * width + x] = 0; else out[y * width + x] = in[y * width + x]; }
        """,
        False,
    ),
    "border without else": (
        """
        __global__ void k(const float *in, float *out, int width, int border) { INDICES;
        out[y * width + x] = in[y * width + x]; if (y < border) out[y * width + x] = 0; }
        """,
        False,
    ),
    "halo": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        if (x < w && y < h) { int p = w + 2; const float *c = in + (y + 1) * p + x + 1; out[y * w + x] = c[-1] + c[1] + c[-p] + c[p]; } }
        """,
        False,
    ),
    "plain": (
        """
        __global__ void k(const float *in, float *out, int width) { INDICES; out[y * width + x] = 2 * in[y * width + x]; }
        """,
        False,
    ),
    "strides": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        for (int j = y; j < h; j += gridDim.y * blockDim.y) for (int i = x; i < w; i += gridDim.x * blockDim.x) out[j * w + i] = in[j * w + i]; }
        """,
        False,
    ),
    "region": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int pitch, int x0, int y0) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[(y + y0) * pitch + x + x0]; }
        """,
        False,
    ),
    "histogram": (
        """
        __global__ void k(const unsigned char *img, int *hist, int w, int h) { INDICES;
        if (x < w && y < h) atomicAdd(&hist[img[y * w + x]], 1); }
        """,
        False,
    ),
    "upsample": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        if (x < w && y < h) for (int j = 0; j < 2; j++) for (int i = 0; i < 2; i++) out[(2 * y + j) * (2 * w) + 2 * x + i] = in[y * w + x]; }
        """,
        False,
    ),
    "valid columns": (
        """
        __global__ void k(const float *in, const float *taps, float *out, int w, int h, int n) { INDICES;
        if (x < w && y < h) { float s = 0; for (int k = 0; k < n; k++) s += in[(y + k) * w + x] * taps[k]; out[y * w + x] = s; } }
        """,
        False,
    ),
    "float4 rows": (
        """
        __global__ void k(const float4 *in, float4 *out, int w, int h) { INDICES;
        if (x >= w || y >= h) return; float4 v = in[y * w + x]; v.x += 1; out[y * w + x] = v; }
        """,
        False,
    ),
    "forward difference": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        if (x < w - 1 && y < h - 1) out[y * w + x] = in[y * w + x + 1] + in[(y + 1) * w + x] - in[y * w + x]; }
        """,
        False,
    ),
    "split": (
        """
        __global__ void k(float *a, int w, int h, int half) { INDICES;
        if (x < w && y < h) { if (x < half) a[y * w + x] = 1; else a[y * w + x] = 2; } }
        """,
        False,
    ),
    "triangle": (
        """
        __global__ void k(const float *a, float *l, int n) { INDICES;
        if (x < n && y < n && x <= y) l[y * n + x] = a[y * n + x]; }
        """,
        False,
    ),
    "columns first": (
        """
        __global__ void k(const float *a, float *b, int lda, int m, int n) { INDICES;
        if (x < m && y < n) b[x + y * m] = a[x + y * lda]; }
        """,
        False,
    ),
    "transpose without a guard": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES; out[x * h + y] = in[y * w + x]; }
        """,
        False,
    ),
    "opencl transpose without a guard": (
        """
        __kernel void k(__global const float *in, __global float *out, int rows, int cols) {
        int x = get_global_id(0), y = get_global_id(1); out[x * rows + y] = in[x + y * cols]; }
        """,
        False,
    ),
    "vertical flip": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES; out[y * w + x] = in[(h - 1 - y) * w + x]; }
        """,
        False,
    ),
    "convolution of channels": (
        """
        __global__ void k(const float *x, const float *wt, float *o, int C, int H, int W, int K) {
        int c0 = blockIdx.x * blockDim.x + threadIdx.x, r0 = blockIdx.y * blockDim.y + threadIdx.y, f = blockIdx.z;
        int OH = H - K + 1, OW = W - K + 1; if (c0 >= OW || r0 >= OH) return; float s = 0;
        for (int c = 0; c < C; c++) for (int i = 0; i < K; i++) for (int j = 0; j < K; j++)
            s += x[(c * H + r0 + i) * W + c0 + j] * wt[((f * C + c) * K + i) * K + j];
        o[(f * OH + r0) * OW + c0] = s; }
        """,
        False,
    ),
    "variables assigned twice": (
        """
        __global__ void k(const float *in, float *out, int w, int h) {
        int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y; float v = in[y * w + x];
        x = blockIdx.x * 16 + threadIdx.x; y = blockIdx.y * 8 + threadIdx.y;
        if (x < w && y < h) out[y * w + x] = v; }
        """,
        True,
    ),
    "a row beyond": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[y * w + x] + in[(y + 1) * w + x]; }
        """,
        True,
    ),
    "a column beyond": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[y * w + x + 1]; }
        """,
        True,
    ),
    "a row and a column beyond": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[y * w + x + 1] - in[y * w + x] + in[(y + 1) * w + x]; }
        """,
        True,
    ),
    "a row beyond, guarded": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y + 1 < h) out[y * w + x] = in[y * w + x] + in[(y + 1) * w + x]; }
        """,
        False,
    ),
    "a column beyond, guarded": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w - 1 && y < h) out[y * w + x] = in[y * w + x + 1]; }
        """,
        False,
    ),
    "clamped": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[min(y + 1, h - 1) * w + min(x + 1, w - 1)]; }
        """,
        False,
    ),
    "rows of a filter": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[y * w + x] + in[(y + 1) * w + x] + in[(y + 2) * w + x]; }
        """,
        False,
    ),
    "rows of a pitch": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        if (x < w && y < h) out[y * w + x] = in[(y + 1) * p + x + 1]; }
        """,
        False,
    ),
    "a guard of the load alone": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        float v = x < w && y < h ? in[y * w + x] : 0; if (x < w) out[y * w + x] = v; }
        """,
        True,
    ),
    "padding": (
        """
        __global__ void k(const float *in, float *out, int w, int h, int p) { INDICES;
        out[y * p + x] = x < w && y < h ? in[y * w + x] : 0; }
        """,
        False,
    ),
    "no y guard": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        if (x >= w) return; float s = y + 1 < h ? 1 : 0; out[y * w + x] = in[y * w + x] + s; }
        """,
        True,
    ),
    "one more": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        if (x <= w && y < h) out[y * w + x] = in[y * w + x]; }
        """,
        True,
    ),
    "rows of height": (
        """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
        if (x < w && y < h) out[y * h + x] = in[y * w + x]; }
        """,
        True,
    ),
    "float4": (
        """
        __global__ void k(const float4 *in, float4 *out, int w, int h) { INDICES;
        if (x > w || y > h) return; float4 v = in[y * w + x]; v.x += 1; out[y * w + x] = v; }
        """,
        True,
    ),
}
"""Kernels that were written after the first version, and whether they have a mistake. Launched with 3 x 2 blocks of
16 x 8 threads."""
