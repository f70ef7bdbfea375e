// check: --grid 1 --block 15 --arg a=random:64 --arg o=zeros:64
// verdict: MisalignedAccess
__global__ void v(const float *a, float *o) {
  float4 x = *reinterpret_cast<const float4 *>(a + 4 * threadIdx.x + 2);
  x.x += x.w; ((float4 *)o)[threadIdx.x] = x;
}
