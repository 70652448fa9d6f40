// Modules of compiled kernels, and their launch.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "hip_control.h"
#include "hip_device.h"
#include "hip_grid.h"
#include "hip_memory.h"
#include "hip_trap.h"

namespace hipcpu {

struct Function {
  const hipcpu_kernel* kernel;
  bool has_barriers;
};

struct Module {
  void* library;
  std::map<std::string, Function> functions;
};

namespace {

constexpr uint64_t kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = 65536;
constexpr size_t kArgumentAlignment = 16;

// What the compiler library makes: this mark, the size of a shared library, its bytes.
constexpr char kMark[] = "HIPCPU01";
constexpr size_t kMarkBytes = 8;
constexpr size_t kHeaderBytes = kMarkBytes + sizeof(uint64_t);

bool write_all(int file, const char* data, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(file, data, bytes);
    if (written <= 0) return false;
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

void* load_library(const char* data, size_t bytes) {
  char path[] = "/tmp/hipcpu-XXXXXX";
  int file = mkstemp(path);
  if (file < 0) return nullptr;
  bool is_written = write_all(file, data, bytes);
  close(file);
  void* library = is_written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) fprintf(stderr, "hipcpu: %s\n", is_written ? dlerror() : "no room in /tmp");
  unlink(path);
  return library;
}

void copy_arguments(Grid& grid, void** arguments) {
  size_t end = 0;
  for (unsigned i = 0; i < grid.kernel->nargs; i++) {
    size_t offset = round_up(end, kArgumentAlignment);
    end = offset + grid.kernel->sizes[i];
    grid.offsets.push_back(offset);
    grid.values.resize(end);
    memcpy(grid.values.data() + offset, arguments[i], grid.kernel->sizes[i]);
  }
}

}  // namespace

HIP_API hipModuleLoadData(Module** module, const void* image) {
  RETURN_IF_ERROR(injected_fault(__func__));
  auto* data = static_cast<const char*>(image);
  if (memcmp(data, kMark, kMarkBytes) != 0) return report(kInvalidImage);
  uint64_t bytes;
  memcpy(&bytes, data + kMarkBytes, sizeof bytes);
  void* library = load_library(data + kHeaderBytes, bytes);
  if (library == nullptr) return report(kInvalidImage);
  auto* table = static_cast<const hipcpu_table*>(dlsym(library, "hipcpu_module_table"));
  if (table == nullptr) return report(kInvalidImage);
  auto* loaded = new Module{library, {}};
  for (unsigned i = 0; i < table->count; i++) {
    const hipcpu_kernel* kernel = table->kernels[i];
    loaded->functions[kernel->name] = {kernel, table->barrier != 0};
  }
  *module = loaded;
  return kOk;
}

HIP_API hipModuleLoad(Module** module, const char* path) {
  RETURN_IF_ERROR(injected_fault(__func__));
  std::ifstream file(path, std::ios::binary);
  if (!file) return report(kFileNotFound);
  std::string image{std::istreambuf_iterator<char>(file), {}};
  if (image.size() < kHeaderBytes) return report(kInvalidImage);
  return hipModuleLoadData(module, image.data());
}

// Kept: queued launches may still need the code.
HIP_API hipModuleUnload(Module*) { return kOk; }

HIP_API hipModuleGetFunction(Function** function, Module* module, const char* name) {
  RETURN_IF_ERROR(injected_fault(__func__));
  auto found = module->functions.find(name);
  if (found == module->functions.end()) return report(kNotFound);
  *function = &found->second;
  return kOk;
}

HIP_API hipModuleGetGlobal(void** address, size_t* bytes, Module* module, const char* name) {
  RETURN_IF_ERROR(injected_fault(__func__));
  void* found = dlsym(module->library, name);
  if (found == nullptr) return report(kNotFound);
  Dl_info info;
  ElfW(Sym)* symbol = nullptr;
  dladdr1(found, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT);
  size_t size = symbol != nullptr ? symbol->st_size : 0;
  *address = found;
  if (bytes != nullptr) *bytes = size;
  add_allocation(
      {static_cast<char*>(found), size == 0 ? 1 : size, MemoryType::kDevice, MemoryOwner::kModule, current_device_id});
  return kOk;
}

HIP_API hipModuleLaunchKernel(const Function* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                              unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                              void* handle, void** arguments, void**) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(current_device().lost);
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  uint64_t threads = uint64_t{threads_x} * threads_y * threads_z;
  if (threads == 0 || threads > kMaxThreads || shared_bytes > kMaxSharedBytes) return report(kInvalidConfiguration);
  if (stream->device.id != current_device_id) return report(kInvalidHandle);
  Grid grid{};
  grid.kernel = function->kernel;
  grid.has_barriers = function->has_barriers;
  grid.blocks = {blocks_x, blocks_y, blocks_z};
  grid.threads = {threads_x, threads_y, threads_z};
  grid.shared_bytes = shared_bytes;
  copy_arguments(grid, arguments);
  Op op{OpKind::kKernel};
  op.name = grid.kernel->name;
  op.run = [grid = std::move(grid)](int) { return run_grid(grid); };
  return report(submit(stream, std::move(op)));
}

// For the rig's other libraries: work for the compute engine, in stream order.
HIPCPU_EXPORT int hipcpu_submit(void* handle, const char* name, void (*function)(void*), void* argument) {
  RETURN_IF_ERROR(current_device().lost);
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  Op op{OpKind::kKernel};
  op.name = name;
  op.run = [=](int) {
    return run_until_trap([=] {
      function(argument);
      return kOk;
    });
  };
  return report(submit(stream, std::move(op)));
}

HIP_API hipFuncGetAttribute(int* value, int attribute, const void*) {
  constexpr int max_threads_per_block = 0;
  *value = attribute == max_threads_per_block ? static_cast<int>(kMaxThreads) : 0;
  return kOk;
}

HIP_API hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 8;
  return kOk;
}

HIP_API hipOccupancyMaxPotentialBlockSize(int* blocks, int* threads, const void*, size_t, int) {
  *blocks = 16;
  *threads = 256;
  return kOk;
}

// Device code compiled into CuPy's wheel (thrust, cub) is for AMD's chips: it loads, and a launch says that there is
// none for this device.

HIPCPU_EXPORT void** __hipRegisterFatBinary(const void*) {
  static void* registered;
  return &registered;
}

HIPCPU_EXPORT void __hipUnregisterFatBinary(void**) {}

HIPCPU_EXPORT void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*,
                                         int*) {}

HIP_API __hipPushCallConfiguration(void*, void*, size_t, void*) { return kOk; }

HIP_API __hipPopCallConfiguration(void*, void*, size_t*, void*) { return kOk; }

HIP_API hipLaunchKernel(const void*, ...) { return report(kNoBinaryForGpu); }

HIP_API hipCreateSurfaceObject(void*, const void*) { return report(kNotSupported); }

HIP_API hipDestroySurfaceObject(void*) { return report(kNotSupported); }

}  // namespace hipcpu
