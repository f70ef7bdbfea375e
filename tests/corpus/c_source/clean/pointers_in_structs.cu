// A linked list of the nodes of an array; a struct of arrays as an argument.
struct Node { int value, next; };
struct Lists { const Node *nodes; int *sums; };

__global__ void pointers_in_structs(Lists lists, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n)
        return;
    int sum = 0, steps = 0;
    for (const Node *p = lists.nodes + t; steps < 6; p = &lists.nodes[p->next % n], ++steps)
        sum = sum * 3 + p->value;
    lists.sums[t] = sum;
}
