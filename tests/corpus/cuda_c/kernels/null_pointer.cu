// launch: grid=1 block=1 out=zeros:1:int32
// truth: OutOfBounds
struct Node { int value; Node *next; };
__global__ void null_pointer(int *out) {
    Node last = {3, nullptr};
    Node *at = &last;
    at = at->next;
    out[0] = at->value;
}
