// Steps of the game of life on a torus, by macros and a row of constants.
#define AT(g, x, y) (g)[((y) + height) % height * width + ((x) + width) % width]
#define NEIGHBOURS(g, x, y)                                                   \
    (AT(g, x - 1, y - 1) + AT(g, x, y - 1) + AT(g, x + 1, y - 1) +            \
     AT(g, x - 1, y) + AT(g, x + 1, y) +                                      \
     AT(g, x - 1, y + 1) + AT(g, x, y + 1) + AT(g, x + 1, y + 1))
__constant__ unsigned char born[9] = {0, 0, 0, 1}, stays[9] = {0, 0, 1, 1};

__global__ void game_of_life(const unsigned char *now, unsigned char *next, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int n = NEIGHBOURS(now, x, y);
    AT(next, x, y) = AT(now, x, y) ? stays[n] : born[n];
}
