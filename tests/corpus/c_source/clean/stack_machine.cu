// A small interpreter: programs in constant memory, a stack in local memory, goto-free.
enum { PUSH, ADD, MUL, NEG, DUP, END };
__constant__ signed char program[] = {PUSH, 3, DUP, MUL, PUSH, 100, NEG, ADD, END};

struct Stack {
    int items[8];
    int size;
    __device__ Stack() : size(0) {}
    __device__ void push(int v) { items[size++] = v; }
    __device__ int pop() { return items[--size]; }
};

__global__ void stack_machine(const int *in, int *out)
{
    int t = threadIdx.x;
    Stack stack;
    stack.push(in[t]);
    const signed char *at = program;
    while (*at != END) {
        switch (*at++) {
        case PUSH: stack.push(*at++ + in[t]); break;
        case ADD: { int a = stack.pop(); stack.push(a + stack.pop()); break; }
        case MUL: { int a = stack.pop(); stack.push(a * stack.pop()); break; }
        case NEG: stack.push(-stack.pop()); break;
        case DUP: { int a = stack.pop(); stack.push(a); stack.push(a); break; }
        }
    }
    out[t] = stack.pop();
}
