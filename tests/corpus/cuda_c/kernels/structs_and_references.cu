// launch: grid=1 block=32 out=zeros:96:float32 n=32
// truth: clean
struct Point { float x, y, z; };
union Bits { float value; unsigned bits; };
__device__ void moved(Point &p, const Point &by, float scale = 2.0f) {
    p.x += by.x * scale; p.y += by.y * scale; p.z += by.z * scale;
}
__device__ float chosen(float a) { return a + 0.5f; }
__device__ int chosen(int a) { return a + 100; }
__global__ void structs(float *out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    Point points[2] = {{1.0f, 2.0f, 3.0f}, {float(i), 0.0f, -1.0f}};
    moved(points[0], points[1]);
    moved(points[1], points[0], 0.5f);
    Bits one;
    one.value = points[0].x;
    out[3 * i] = points[1].x;
    out[3 * i + 1] = one.bits & 0xffu;
    out[3 * i + 2] = chosen(points[1].z) + chosen(i);
}
