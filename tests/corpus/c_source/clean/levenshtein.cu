// Distances between words, one pair a thread, with a row in local memory.
template <typename T>
__device__ T least(T a, T b) { return b < a ? b : a; }
template <typename T, typename... Rest>
__device__ T least(T a, T b, Rest... rest) { return least(least(a, b), rest...); }

__global__ void levenshtein(const char *a, const char *b, int *out, int length)
{
    int t = threadIdx.x, row[9];
    a += t * length, b += t * length;
    for (int j = 0; j <= length; ++j)
        row[j] = j;
    for (int i = 1; i <= length; ++i) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= length; ++j) {
            int above = row[j];
            row[j] = least(diagonal + (a[i - 1] % 4 != b[j - 1] % 4), above + 1, row[j - 1] + 1);
            diagonal = above;
        }
    }
    out[t] = row[length];
}
