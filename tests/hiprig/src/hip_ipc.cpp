// Memory shared between processes: a handle names a range in the file behind a device's arena.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "hip_control.h"
#include "hip_device.h"
#include "hip_memory.h"

namespace hipcpu {

namespace {

constexpr uint64_t kMagic = 0x48495043;

struct SharedRange {
  uint64_t magic;
  int process;
  int file;
  int device;
  size_t offset;
  size_t bytes;
};

}  // namespace

struct IpcHandle {
  char data[64];
};
static_assert(sizeof(SharedRange) <= sizeof(IpcHandle));

HIP_API hipIpcGetMemHandle(IpcHandle* handle, void* address) {
  RETURN_IF_ERROR(injected_fault(__func__));
  std::optional<Allocation> allocation = find_allocation(address);
  if (!allocation || allocation->owner != MemoryOwner::kArena) return report(kInvalidValue);
  const Device& device = *devices()[allocation->device];
  SharedRange range{};
  range.magic = kMagic;
  range.process = getpid();
  range.file = device.file;
  range.device = device.id;
  range.offset = static_cast<size_t>(allocation->base - device.arena);
  range.bytes = allocation->bytes;
  *handle = {};
  memcpy(handle, &range, sizeof range);
  return kOk;
}

HIP_API hipIpcOpenMemHandle(void** address, IpcHandle handle, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  SharedRange range;
  memcpy(&range, &handle, sizeof range);
  if (range.magic != kMagic) return report(kInvalidValue);
  if (range.process == getpid()) return report(kInvalidContext);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", range.process, range.file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return report(kInvalidValue);
  size_t first_page = round_down(range.offset, kPage);
  size_t lead = range.offset - first_page;
  void* mapped =
      mmap(nullptr, lead + range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(first_page));
  close(file);
  if (mapped == MAP_FAILED) return report(kOutOfMemory);
  char* base = static_cast<char*>(mapped) + lead;
  add_allocation({base, range.bytes, MemoryType::kDevice, MemoryOwner::kOtherProcess, current_device_id});
  *address = base;
  return kOk;
}

// CuPy calls this and holds the GIL: it must not wait for streams, whose host functions may want the GIL.
HIP_API hipIpcCloseMemHandle(void* address) {
  RETURN_IF_ERROR(injected_fault(__func__));
  std::optional<Allocation> allocation = find_allocation(address);
  if (!allocation || allocation->owner != MemoryOwner::kOtherProcess) return report(kInvalidValue);
  if (!remove_allocation(allocation->base)) return report(kInvalidValue);
  size_t lead = reinterpret_cast<uintptr_t>(allocation->base) % kPage;
  munmap(allocation->base - lead, lead + allocation->bytes);
  return kOk;
}

}  // namespace hipcpu
