// check: --grid 1 --block 16 --arg a=random:64 --arg o=zeros:64
// verdict: clean
__global__ void v(const float *a, float *o) {
  float4 x = reinterpret_cast<const float4 *>(a)[threadIdx.x];
  x.x += x.w; ((float4 *)o)[threadIdx.x] = x;
}
