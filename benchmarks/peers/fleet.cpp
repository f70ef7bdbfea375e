// The practical limit: a heap of busy devices, arrivals merged outside it, a bit set for each class and number of jobs.
//   g++ -O3 -std=c++17 fleet.cpp -o fleet && ./fleet JOBS.bin N
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>
using std::vector;

static const int CLASSES = 4, PER_CLASS = 250, DEVICES = CLASSES * PER_CLASS, WORDS = 4;
static const double SPEEDS[CLASSES] = {8, 4, 2, 1};

static double cpu_s() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

struct Policy {
  vector<uint64_t> masks[CLASSES];  // WORDS words for each number of jobs present
  int least[CLASSES] = {0}, present[DEVICES] = {0};
  double slowness[CLASSES];
  Policy() {
    for (int c = 0; c < CLASSES; c++) {
      masks[c].assign(2 * WORDS, 0);
      for (int j = 0; j < PER_CLASS; j++) masks[c][j >> 6] |= 1ULL << (j & 63);
      slowness[c] = 1 / SPEEDS[c];
    }
  }
  inline int choose() {
    double best = 1e300;
    int chosen = 0;
    for (int c = 0; c < CLASSES; c++) {
      double expected = (least[c] + 1) * slowness[c];
      if (expected < best) best = expected, chosen = c;
    }
    int k = least[chosen];
    auto &m = masks[chosen];
    if ((size_t)(k + 2) * WORDS > m.size()) m.resize(m.size() * 2, 0);
    uint64_t *b = &m[k * WORDS];
    int word = 0;
    while (!b[word]) word++;
    int j = word * 64 + __builtin_ctzll(b[word]);
    b[word] &= b[word] - 1;
    m[(k + 1) * WORDS + word] |= 1ULL << (j & 63);
    if (!(b[0] | b[1] | b[2] | b[3])) least[chosen] = k + 1;
    present[chosen * PER_CLASS + j] = k + 1;
    return chosen * PER_CLASS + j;
  }
  inline void done(int i) {
    int c = i / PER_CLASS, j = i - c * PER_CLASS, k = present[i]--;
    uint64_t bit = 1ULL << (j & 63);
    masks[c][k * WORDS + (j >> 6)] &= ~bit;
    masks[c][(k - 1) * WORDS + (j >> 6)] |= bit;
    if (k - 1 < least[c]) least[c] = k - 1;
  }
};

struct End {
  double at;
  int device;
};
struct Heap {  // four children a node
  vector<End> h;
  void push(End e) {
    size_t i = h.size();
    h.push_back(e);
    while (i) {
      size_t up = (i - 1) >> 2;
      if (h[up].at <= e.at) break;
      h[i] = h[up];
      i = up;
    }
    h[i] = e;
  }
  void replace(End e) {
    size_t n = h.size(), i = 0;
    for (;;) {
      size_t child = 4 * i + 1;
      if (child >= n) break;
      size_t least = child, last = std::min(child + 4, n);
      for (size_t k = child + 1; k < last; k++)
        if (h[k].at < h[least].at) least = k;
      if (h[least].at >= e.at) break;
      h[i] = h[least];
      i = least;
    }
    h[i] = e;
  }
  void pop() {
    End e = h.back();
    h.pop_back();
    if (h.size()) replace(e);
  }
};

struct Waiting {
  double arrived, duration;
  uint32_t job;
};
struct Ring {
  vector<Waiting> b = vector<Waiting>(16);
  uint32_t head = 0, size = 0;
  void push(Waiting x) {
    if (size == b.size()) {
      vector<Waiting> c(b.size() * 2);
      for (uint32_t i = 0; i < size; i++) c[i] = b[(head + i) & (b.size() - 1)];
      b.swap(c);
      head = 0;
    }
    b[(head + size) & (b.size() - 1)] = x;
    size++;
  }
  Waiting &front() { return b[head]; }
  void pop() { head = (head + 1) & (b.size() - 1), size--; }
};

static double quantile(vector<double> &v, double q) {
  double h = (v.size() - 1) * q;
  size_t i = (size_t)h;
  std::nth_element(v.begin(), v.begin() + i, v.end());
  double a = v[i], b = i + 1 < v.size() ? *std::min_element(v.begin() + i + 1, v.end()) : a;
  return a + (h - i) * (b - a);
}

int main(int, char **argv) {
  long n = atol(argv[2]);
  FILE *file = fopen(argv[1], "rb");
  if (!file) return 1;
  fseek(file, 0, SEEK_END);
  long held = ftell(file) / 16;
  vector<double> gaps(n), sizes(n);
  fseek(file, 0, SEEK_SET);
  if (fread(gaps.data(), 8, n, file) != (size_t)n) return 1;
  fseek(file, 8 * held, SEEK_SET);
  if (fread(sizes.data(), 8, n, file) != (size_t)n) return 1;
  fclose(file);
  double began = cpu_s();
  Policy policy;
  Heap ends;
  ends.h.reserve(DEVICES + 2);
  vector<Ring> queues(DEVICES);
  vector<double> latency(n), busy(DEVICES, 0);
  double now = 0, arrival = gaps[0];
  long next = 0;
  while (true) {
    if (next < n && (ends.h.empty() || arrival <= ends.h[0].at)) {
      now = arrival;
      int i = policy.choose();
      double duration = sizes[next] * policy.slowness[i / PER_CLASS];
      busy[i] += duration;
      queues[i].push({now, duration, (uint32_t)next});
      if (queues[i].size == 1) ends.push({now + duration, i});
      if (++next < n) arrival = now + gaps[next];
    } else if (ends.h.empty()) {
      break;
    } else {
      End e = ends.h[0];
      now = e.at;
      Waiting done = queues[e.device].front();
      queues[e.device].pop();
      latency[done.job] = now - done.arrived;
      policy.done(e.device);
      if (queues[e.device].size)
        ends.replace({now + queues[e.device].front().duration, e.device});
      else
        ends.pop();
    }
  }
  double total_busy = 0, sum = 0;
  for (double b : busy) total_busy += b;
  double energy = 60.0 * DEVICES * now + 240.0 * total_busy;
  for (double x : latency) sum += x;
  vector<double> copy = latency;
  double p50 = quantile(copy, 0.5), p99 = quantile(copy, 0.99), spent = cpu_s() - began;
  long peak_kb = 0;
  char line[256];
  if (FILE *status = fopen("/proc/self/status", "r")) {
    while (fgets(line, sizeof line, status))
      if (!strncmp(line, "VmHWM", 5)) peak_kb = atol(line + 6);
    fclose(status);
  }
  printf("{\"peer\": \"C++\", \"jobs\": %ld, \"cpu_s\": %.6f, \"peak_mb\": %.1f, \"mean_s\": %.17g, \"p50_s\": %.17g, "
         "\"p99_s\": %.17g, \"energy_j\": %.17g}\n",
         n, spent, peak_kb / 1024.0, sum / n, p50, p99, energy);
}
