// launch: grid=1 block=16,16 a=arange:256:int32
// truth: DataRace
__global__ void transposed(int *a) {
    int x = threadIdx.x, y = threadIdx.y, kept = a[y * 16 + x];
    a[x * 16 + y] = kept;
}
