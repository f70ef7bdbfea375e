// Launches compiled kernels as a list says, through the CUDA driver: the program that compute-sanitizer watches.
//
//     launch_cases LIST DATA [--fill] [--go-on] [--repeat N] [--out FILE] [NAME ...]    only these cases, if any are named
//     launch_cases --hold                                       keeps a context open until it is killed
//
// With --go-on a case that fails ends alone, if the context outlives it. LIST has lines (c_cases.py writes it): `case NAME MODULE`, `buffer BYTES OFFSET` (where it begins in DATA; -1: never
// written), `launch SYMBOL GX GY GZ BX BY BZ SHARED COOPERATIVE`, `arg PART ...` (`bN`: the address of buffer N, `vHEX`:
// bytes), `end`. Needs no header of CUDA: g++ -O1 -o launch_cases launch_cases.cc -ldl
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

typedef unsigned long long Address;
static void *driver;

template <class F> static F *function(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        std::printf("@@ error - no %s\n", name);
        std::exit(4);
    }
    return (F *)found;
}

static std::string at = "-";
static bool go_on = false;
struct Failed {};

static void ok(int status, const char *what) {
    if (!status) return;
    const char *name = nullptr;
    static auto *name_of = function<int(int, const char **)>("cuGetErrorName");
    name_of(status, &name);
    std::printf("@@ error %s %s: %s\n", at.c_str(), what, name ? name : "?");
    std::fflush(stdout);
    static auto *synchronize = function<int()>("cuCtxSynchronize");
    if (go_on && at != "-" && !synchronize()) throw Failed{};  // the context still works
    _exit(3);
}

struct Buffer { size_t bytes; long offset; Address there; };
struct Launch { std::string symbol; unsigned sizes[6], shared; int cooperative; std::vector<std::string> arguments; };
struct Case { std::string name, module; std::vector<Buffer> buffers; std::vector<Launch> launches; };

static std::vector<Case> read_list(const char *path) {
    std::vector<Case> cases;
    std::ifstream file(path);
    std::string line, word;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        words >> word;
        if (word == "case") {
            cases.emplace_back();
            words >> cases.back().name >> cases.back().module;
        } else if (word == "buffer") {
            Buffer made{0, 0, 0};
            words >> made.bytes >> made.offset;
            cases.back().buffers.push_back(made);
        } else if (word == "launch") {
            Launch made;
            words >> made.symbol;
            for (auto &size : made.sizes) words >> size;
            words >> made.shared >> made.cooperative;
            cases.back().launches.push_back(made);
        } else if (word == "arg") {
            std::string parts;
            std::getline(words, parts);
            cases.back().launches.back().arguments.push_back(parts);
        }
    }
    return cases;
}

static std::string contents(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

int main(int count, char **words) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (count < 2) {
        std::printf("@@ usage: LIST DATA, or --hold\n");
        return 0;
    }
    for (const char *name : {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/nvidia/lib/libcuda.so.1"})
        if ((driver = dlopen(name, RTLD_NOW | RTLD_GLOBAL))) break;
    if (!driver) {
        std::printf("@@ error - %s\n", dlerror());
        return 4;
    }
    auto *init = function<int(unsigned)>("cuInit");
    auto *device_get = function<int(int *, int)>("cuDeviceGet");
    auto *retain = function<int(void **, int)>("cuDevicePrimaryCtxRetain");
    auto *set_current = function<int(void *)>("cuCtxSetCurrent");
    auto *synchronize = function<int()>("cuCtxSynchronize");
    auto *load = function<int(void **, const void *)>("cuModuleLoadData");
    auto *unload = function<int(void *)>("cuModuleUnload");
    auto *get = function<int(void **, void *, const char *)>("cuModuleGetFunction");
    auto *attribute = function<int(void *, int, int)>("cuFuncSetAttribute");
    auto *allocate = function<int(Address *, size_t)>("cuMemAlloc_v2");
    auto *release = function<int(Address)>("cuMemFree_v2");
    auto *fill_bytes = function<int(Address, unsigned char, size_t)>("cuMemsetD8_v2");
    auto *to_device = function<int(Address, const void *, size_t)>("cuMemcpyHtoD_v2");
    auto *to_host = function<int(void *, Address, size_t)>("cuMemcpyDtoH_v2");
    typedef int Start(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    typedef int StartTogether(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
    auto *start = function<Start>("cuLaunchKernel");
    auto *start_together = function<StartTogether>("cuLaunchCooperativeKernel");
    int device = 0;
    void *context = nullptr;
    ok(init(0), "cuInit");
    ok(device_get(&device, 0), "cuDeviceGet");
    ok(retain(&context, device), "cuDevicePrimaryCtxRetain");
    ok(set_current(context), "cuCtxSetCurrent");
    if (count > 1 && !std::strcmp(words[1], "--hold")) {
        std::printf("@@ held\n");
        for (;;) pause();
    }
    if (count < 3) return 2;
    bool fill = false;
    int repeat = 1;
    const char *out = nullptr;
    std::set<std::string> chosen;
    for (int n = 3; n < count; ++n) {
        if (!std::strcmp(words[n], "--fill")) fill = true;
        else if (!std::strcmp(words[n], "--go-on")) go_on = true;
        else if (!std::strcmp(words[n], "--repeat")) repeat = std::atoi(words[++n]);
        else if (!std::strcmp(words[n], "--out")) out = words[++n];
        else chosen.insert(words[n]);
    }
    std::string list = words[1], folder = list.substr(0, list.find_last_of('/') + 1), data = contents(words[2]);
    FILE *kept = out ? std::fopen(out, "wb") : nullptr;
    for (auto &one : read_list(words[1])) {
        if (!chosen.empty() && !chosen.count(one.name)) continue;
        at = one.name;
        std::printf("@@ start %s\n", at.c_str());
        std::fflush(stdout);
        std::string code = contents(folder + one.module);
        try {
        for (int turn = 0; turn < repeat; ++turn) {
            void *module = nullptr;
            ok(code.empty() ? 301 : 0, "module");
            ok(load(&module, code.data()), "cuModuleLoadData");
            for (auto &buffer : one.buffers) {
                ok(allocate(&buffer.there, buffer.bytes), "cuMemAlloc");
                if (buffer.offset >= 0) ok(to_device(buffer.there, data.data() + buffer.offset, buffer.bytes), "cuMemcpyHtoD");
                else if (fill) ok(fill_bytes(buffer.there, 0xFF, buffer.bytes), "cuMemsetD8");
            }
            for (auto &launch : one.launches) {
                void *kernel = nullptr;
                ok(get(&kernel, module, launch.symbol.c_str()), "cuModuleGetFunction");
                if (launch.shared > 48 * 1024) ok(attribute(kernel, 8, launch.shared), "cuFuncSetAttribute");
                std::vector<std::vector<unsigned char>> values;
                for (auto &parts : launch.arguments) {
                    std::vector<unsigned char> bytes;
                    std::istringstream words_of(parts);
                    std::string part;
                    while (words_of >> part) {
                        if (part[0] == 'b') {
                            Address address = one.buffers[std::atoi(part.c_str() + 1)].there;
                            unsigned char *from = (unsigned char *)&address;
                            bytes.insert(bytes.end(), from, from + sizeof address);
                        } else {
                            for (size_t n = 1; n + 1 < part.size(); n += 2)
                                bytes.push_back((unsigned char)std::strtoul(part.substr(n, 2).c_str(), nullptr, 16));
                        }
                    }
                    bytes.resize(bytes.size() + 16);  // whatever the kernel reads beyond is its own mistake
                    values.push_back(bytes);
                }
                std::vector<void *> pointers;
                for (auto &value : values) pointers.push_back(value.data());
                const unsigned *s = launch.sizes;
                if (launch.cooperative)
                    ok(start_together(kernel, s[0], s[1], s[2], s[3], s[4], s[5], launch.shared, nullptr, pointers.data()), "cuLaunchCooperativeKernel");
                else
                    ok(start(kernel, s[0], s[1], s[2], s[3], s[4], s[5], launch.shared, nullptr, pointers.data(), nullptr), "cuLaunchKernel");
            }
            ok(synchronize(), "kernel");
            if (fill) {
                std::printf("@@ hashes %s", at.c_str());
                for (auto &buffer : one.buffers) {
                    std::vector<unsigned char> here(buffer.bytes);
                    ok(to_host(here.data(), buffer.there, buffer.bytes), "cuMemcpyDtoH");
                    uint64_t hash = 14695981039346656037ull;  // FNV-1a
                    for (unsigned char byte : here) hash = (hash ^ byte) * 1099511628211ull;
                    std::printf(" %016llx", (unsigned long long)hash);
                    if (kept && turn == repeat - 1) std::fwrite(here.data(), 1, here.size(), kept);
                }
                std::printf("\n");
            }
            for (auto &buffer : one.buffers) {
                ok(release(buffer.there), "cuMemFree");
                buffer.there = 0;
            }
            ok(unload(module), "cuModuleUnload");
        }
        } catch (Failed) {
            for (auto &buffer : one.buffers) release(buffer.there);
            continue;
        }
        std::printf("@@ done %s\n", at.c_str());
        std::fflush(stdout);
    }
    if (kept) std::fclose(kept);
    std::fflush(stdout);
    _exit(0);
}
