"""Kernels in the style of public programs, and twins of them with one mistake, which the sizes made up have to show."""

from __future__ import annotations

from tests.corpus.c_sizes.kernels import Sized

TWINS: dict[str, tuple[Sized, dict[str, tuple[str, str]]]] = {
    "transpose sdk": (
        Sized(
            """
        #define TILE 16
        #define ROWS 4
        __global__ void k(float *odata, float *idata, int width, int height) {
          __shared__ float tile[TILE][TILE + 1];
          int xIndex = blockIdx.x * TILE + threadIdx.x, yIndex = blockIdx.y * TILE + threadIdx.y;
          int index_in = xIndex + yIndex * width;
          xIndex = blockIdx.y * TILE + threadIdx.x; yIndex = blockIdx.x * TILE + threadIdx.y;
          int index_out = xIndex + yIndex * height;
          for (int i = 0; i < TILE; i += ROWS) tile[threadIdx.y + i][threadIdx.x] = idata[index_in + i * width];
          __syncthreads();
          for (int i = 0; i < TILE; i += ROWS) odata[index_out + i * height] = tile[threadIdx.x][threadIdx.y + i];
        }
            """,
            "2,3",
            "16,4",
        ),
        {},
    ),
    "transpose square grid": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int cols, int rows) { INDICES;
          if (x < cols && y < rows) out[x * rows + y] = in[y * cols + x]; }
            """,
            "2,2",
            "16,16",
        ),
        {
            "wrong side out": ("x * rows + y", "x * cols + y"),
            "wrong side in": ("y * cols + x", "y * rows + x"),
        },
    ),
    "sgemm naive": (
        Sized(
            """
        __global__ void k(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C) {
          const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
          if (x < M && y < N) { float t = 0; for (int i = 0; i < K; ++i) t += A[x * K + i] * B[i * N + y]; C[x * N + y] = alpha * t + beta * C[x * N + y]; }
        }
            """,
            "2,3",
            "16,8",
        ),
        {
            "wrong side": ("C[x * N + y] = ", "C[x * M + y] = "),
            "k <= K": ("i < K", "i <= K"),
        },
    ),
    "gemm tiled tail": (
        Sized(
            """
        #define T 8
        __global__ void k(float *C, const float *A, const float *B, int hA, int wA, int wB) {
          __shared__ float As[T][T], Bs[T][T];
          int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y; int row = by * T + ty, col = bx * T + tx; float s = 0;
          for (int p = 0; p < (wA - 1) / T + 1; p++) {
            As[ty][tx] = (row < hA && p * T + tx < wA) ? A[row * wA + p * T + tx] : 0.f;
            Bs[ty][tx] = (p * T + ty < wA && col < wB) ? B[(p * T + ty) * wB + col] : 0.f;
            __syncthreads(); for (int i = 0; i < T; i++) s += As[ty][i] * Bs[i][tx]; __syncthreads();
          }
          if (row < hA && col < wB) C[row * wB + col] = s;
        }
            """,
            "3,2",
            "8,8",
        ),
        {
            "C pitch": ("C[row * wB + col]", "C[row * wA + col]"),
            "A row guard": ("row < hA && p * T + tx < wA)", "p * T + tx < wA)"),
        },
    ),
    "hotspot": (
        Sized(
            """
        __global__ void k(const float *power, const float *src, float *dst, int grid_cols, int grid_rows, float cap) {
          int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
          if (r >= grid_rows || c >= grid_cols) return;
          int N = r > 0 ? r - 1 : 0, S = r < grid_rows - 1 ? r + 1 : grid_rows - 1, W = c > 0 ? c - 1 : 0, E = c < grid_cols - 1 ? c + 1 : grid_cols - 1;
          int at = r * grid_cols + c;
          dst[at] = src[at] + cap * (power[at] + src[N * grid_cols + c] + src[S * grid_cols + c] + src[r * grid_cols + W] + src[r * grid_cols + E]);
        }
            """,
            "3,2",
            "16,8",
        ),
        {
            "clamp": ("r < grid_rows - 1 ? r + 1 : grid_rows - 1", "r < grid_rows ? r + 1 : grid_rows"),
            "no c": ("r >= grid_rows || c >= grid_cols", "r >= grid_rows"),
        },
    ),
    "clamped min max": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int width, int height) { INDICES;
          if (x >= width || y >= height) return;
          int up = max(y - 1, 0), down = min(y + 1, height - 1), l = max(x - 1, 0), r = min(x + 1, width - 1);
          out[y * width + x] = in[up * width + x] + in[down * width + x] + in[y * width + l] + in[y * width + r];
        }
            """,
            "3,2",
            "16,8",
        ),
        {
            "clamp height": ("min(y + 1, height - 1)", "min(y + 1, height)"),
            "clamp exchanged": ("min(y + 1, height - 1)", "min(y + 1, width - 1)"),
        },
    ),
    "convolution columns": (
        Sized(
            """
        __global__ void k(float *dst, const float *src, const float *kern, int imageW, int imageH, int rad) { INDICES;
          if (x >= imageW || y >= imageH) return; float s = 0;
          for (int j = -rad; j <= rad; j++) { int d = y + j; if (d >= 0 && d < imageH) s += src[d * imageW + x] * kern[rad - j]; }
          dst[y * imageW + x] = s; }
            """,
            "3,2",
            "16,8",
        ),
        {
            "wrong bound": ("d < imageH", "d < imageW"),
        },
    ),
    "fdtd2d step2 pitched": (
        Sized(
            """
        __global__ void k(int nx, int ny, float *ex, float *ey, float *hz) {
          int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
          if ((i < nx) && (j < ny)) hz[i * ny + j] -= 0.7f * (ex[i * (ny + 1) + (j + 1)] - ex[i * (ny + 1) + j] + ey[(i + 1) * ny + j] - ey[i * ny + j]); }
            """,
            "3,2",
            "16,8",
        ),
        {},
    ),
    "srad": (
        Sized(
            """
        __global__ void k(float *J, float *dN, float *dS, float *C, int cols, int rows) {
          int cx = blockIdx.x * blockDim.x + threadIdx.x, cy = blockIdx.y * blockDim.y + threadIdx.y;
          if (cx >= cols || cy >= rows) return; int index = cols * cy + cx;
          int n = cy == 0 ? index : index - cols, s = cy == rows - 1 ? index : index + cols;
          dN[index] = J[n] - J[index]; dS[index] = J[s] - J[index]; C[index] = dN[index] + dS[index]; }
            """,
            "3,2",
            "16,8",
        ),
        {
            "s": ("cy == rows - 1", "cy == rows"),
        },
    ),
    "lud internal": (
        Sized(
            """
        __global__ void k(float *m, int dim, int offset) { __shared__ float r[16][16], c[16][16];
          int gr = offset + (blockIdx.y + 1) * 16, gc = offset + (blockIdx.x + 1) * 16;
          r[threadIdx.y][threadIdx.x] = m[(offset + threadIdx.y) * dim + gc + threadIdx.x]; c[threadIdx.y][threadIdx.x] = m[(gr + threadIdx.y) * dim + offset + threadIdx.x];
          __syncthreads(); float s = 0; for (int i = 0; i < 16; i++) s += c[threadIdx.y][i] * r[i][threadIdx.x]; m[(gr + threadIdx.y) * dim + gc + threadIdx.x] -= s; }
            """,
            "2,2",
            "16,16",
        ),
        {},
    ),
    "mirror": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
          if (x < w && y < h) out[y * w + x] = in[(h - 1 - y) * w + (w - 1 - x)]; }
            """,
            "3,2",
            "16,8",
        ),
        {
            "h - y": ("h - 1 - y", "h - y"),
        },
    ),
    "wrap": (
        Sized(
            """
        __global__ void k(const int *in, int *out, int w, int h) { INDICES; if (x >= w || y >= h) return;
          int l = (x + w - 1) % w, r = (x + 1) % w, u = (y + h - 1) % h, d = (y + 1) % h; out[y * w + x] = in[y * w + l] + in[y * w + r] + in[u * w + x] + in[d * w + x]; }
            """,
            "3,2",
            "16,8",
        ),
        {
            "mod": ("d = (y + 1) % h", "d = (y + 1) % w"),
        },
    ),
    "integral pitch": (
        Sized(
            """
        __global__ void k(const float *sat, float *out, int w, int h, int pitch, int r) { INDICES;
          if (x >= w || y >= h) return; out[y * w + x] = sat[min(y + r, h) * pitch + min(x + r, w)] - sat[y * pitch + x]; }
            """,
            "3,2",
            "16,8",
        ),
        {},
    ),
    "layers inclusive": (
        Sized(
            """
        __global__ void k(float *p, int w, int h, int levels) { INDICES;
          if (x < w && y < h) for (int l = 0; l <= levels; l++) p[(l * h + y) * w + x] = l; }
            """,
            "3,2",
            "16,8",
        ),
        {},
    ),
    "fd radius coefs": (
        Sized(
            """
        __global__ void k(const float *in, float *out, const float *coef, int nx, int ny, int radius) { INDICES;
          if (x < radius || x >= nx - radius || y >= ny) return; float s = coef[0] * in[y * nx + x];
          for (int i = 1; i <= radius; i++) s += coef[i] * (in[y * nx + x - i] + in[y * nx + x + i]); out[y * nx + x] = s; }
            """,
            "3,2",
            "16,8",
        ),
        {},
    ),
    "vertical sums": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES; if (x < w && y < h) out[(y + 1) * w + x] = in[y * w + x]; }
            """,
            "3,2",
            "16,8",
        ),
        {},
    ),
    "maxpool": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int H, int W, int OH, int OW) { INDICES;
          if (x >= OW || y >= OH) return; float m = -1e9f;
          for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) m = fmaxf(m, in[(2 * y + i) * W + 2 * x + j]);
          out[y * OW + x] = m; }
            """,
            "3,2",
            "16,8",
        ),
        {"wrong side": ("out[y * OW + x]", "out[y * OH + x]")},
    ),
    "rows twice": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int w, int h) { INDICES;
          if (x < w && y < h) { int W = 2 * w; float v = in[y * w + x];
            out[2 * y * W + 2 * x] = v; out[2 * y * W + 2 * x + 1] = v;
            out[(2 * y + 1) * W + 2 * x] = v; out[(2 * y + 1) * W + 2 * x + 1] = v; } }
            """,
            "3,2",
            "16,8",
        ),
        {"rows too far": ("(2 * y + 1) * W + 2 * x] ", "(2 * y + 2) * W + 2 * x] ")},
    ),
    "interlaced": (
        Sized(
            """
        __kernel void k(__global const float *in, __global float2 *out, int w, int h) {
          int x = get_global_id(0), y = get_global_id(1);
          if (x < w && y < h) { out[(y * 2) * w + x] = (float2)(in[y * w + x]); out[(y * 2 + 1) * w + x] = 0; } }
            """,
            "3,2",
            "16,8",
        ),
        {},
    ),
    "volume": (
        Sized(
            """
        __global__ void k(const float *in, float *a, int nx, int ny, int nz) {
          int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
          int z = blockIdx.z * blockDim.z + threadIdx.z;
          if (x < nx && y < ny && z < nz) a[(z * ny + y) * nx + x] = in[(z * ny + y) * nx + x]; }
            """,
            "2,3,2",
            "8,4,4",
        ),
        {
            "no guard along z": (" && z < nz", ""),
            "value of the depth": ("&& z < nz) a[(z * ny + y) * nx + x] =", ") a[(z * ny + y) * nx + x] = nz *"),
        },
    ),
    "planes": (
        Sized(
            """
        __global__ void k(const float *in, float *out, int nx, int ny, int nz) { INDICES;
          if (x >= nx || y >= ny) return; out[y * nx + x] = 0;
          for (int k = 0; k < nz - 1; k++)
            out[(k * ny + y) * nx + x] = in[((k + 1) * ny + y) * nx + x] - in[(k * ny + y) * nx + x]; }
            """,
            "3,2",
            "16,8",
        ),
        {"a plane too far": ("nz - 1", "nz")},
    ),
}
"""Of each kernel, what is replaced by what in a twin."""
