// One round of shortest paths: each thread relaxes one edge.
struct Edge { int from, to, weight; };

__global__ void relax_edges(const int *from, const int *to, const int *weight, const int *before, int *distance, int edges)
{
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= edges)
        return;
    Edge edge = {from[e], to[e], weight[e]};
    int through = before[edge.from] + edge.weight;
    if (through < distance[edge.to])
        atomicMin(&distance[edge.to], through);
}
