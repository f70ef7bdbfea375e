// Accelerations of bodies, with tiles of bodies in shared memory.
#define SOFT 0.01f

__device__ float3 pull(float4 a, float4 b, float3 sum)
{
    float3 r = make_float3(b.x - a.x, b.y - a.y, b.z - a.z);
    float d = r.x * r.x + r.y * r.y + r.z * r.z + SOFT;
    float s = b.w / (d * sqrtf(d));
    sum.x += r.x * s;
    sum.y += r.y * s;
    sum.z += r.z * s;
    return sum;
}

__global__ void n_body(const float4 *bodies, float3 *acceleration, int n)
{
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 own = bodies[i];
    float3 sum = {0.0f, 0.0f, 0.0f};
    for (int first = 0; first < n; first += blockDim.x) {
        tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < blockDim.x; ++j)
            sum = pull(own, tile[j], sum);
        __syncthreads();
    }
    acceleration[i] = sum;
}
