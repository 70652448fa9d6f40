// Memory: allocations of devices, pinned host memory, managed memory, and what is asked about addresses.
#include "hip_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "hip_control.h"
#include "hip_device.h"

namespace hipcpu {

namespace {

constexpr size_t kGranule = 512;
constexpr size_t kWorthGivingBack = 1 << 20;
constexpr int kPoison = 0xcd;

// Never destroyed: streams still run while the process exits.
std::map<char*, Allocation>& allocations = *new std::map<char*, Allocation>;

size_t granules(size_t bytes) { return bytes == 0 ? kGranule : round_up(bytes, kGranule); }

// The first hole that is large enough; null if there is none.
char* take_from_arena(Device& device, size_t bytes) {
  std::lock_guard lock(allocation_mutex());
  for (auto [offset, size] : device.holes) {
    if (size < bytes) continue;
    device.holes.erase(offset);
    if (size > bytes) device.holes[offset + bytes] = size - bytes;
    device.used += bytes;
    return device.arena + offset;
  }
  return nullptr;
}

// Frees the pages under a large range, as the arena's file would keep them.
void give_back_pages(Device& device, size_t offset, size_t bytes) {
  if (bytes < kWorthGivingBack) return;
  size_t first = round_up(offset, kPage);
  size_t last = round_down(offset + bytes, kPage);
  madvise(device.arena + first, last - first, MADV_REMOVE);
}

void return_to_arena(Device& device, char* base, size_t bytes) {
  size_t offset = static_cast<size_t>(base - device.arena);
  std::lock_guard lock(allocation_mutex());
  device.used -= bytes;
  give_back_pages(device, offset, bytes);
  auto next = device.holes.lower_bound(offset);
  if (next != device.holes.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = device.holes.erase(next);
  }
  if (next != device.holes.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  device.holes[offset] = bytes;
}

}  // namespace

std::mutex& allocation_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

void add_allocation(const Allocation& allocation) {
  std::lock_guard lock(allocation_mutex());
  allocations[allocation.base] = allocation;
}

bool remove_allocation(void* base) {
  std::lock_guard lock(allocation_mutex());
  return allocations.erase(static_cast<char*>(base)) != 0;
}

std::optional<Allocation> find_allocation(const void* address) {
  auto* wanted = static_cast<char*>(const_cast<void*>(address));
  std::lock_guard lock(allocation_mutex());
  auto found = allocations.upper_bound(wanted);
  if (found == allocations.begin()) return std::nullopt;
  --found;
  const Allocation& allocation = found->second;
  if (wanted >= allocation.base + allocation.bytes) return std::nullopt;
  return allocation;
}

MemoryType memory_type(const void* address) {
  std::optional<Allocation> allocation = find_allocation(address);
  return allocation ? allocation->type : MemoryType::kPageable;
}

bool is_within_allocation(const void* begin, size_t bytes) {
  std::optional<Allocation> allocation = find_allocation(begin);
  return !allocation || static_cast<const char*>(begin) + bytes <= allocation->base + allocation->bytes;
}

HIP_API hipMalloc(void** address, size_t bytes) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  RETURN_IF_ERROR(refuse_during_capture());
  *address = nullptr;
  char* base = take_from_arena(device, granules(bytes));
  if (base == nullptr) return report(kOutOfMemory);
  static const bool poison = getenv("HIPCPU_POISON") != nullptr;
  if (poison) memset(base, kPoison, granules(bytes));
  add_allocation({base, bytes == 0 ? 1 : bytes, MemoryType::kDevice, MemoryOwner::kArena, device.id});
  *address = base;
  return kOk;
}

// Waits for the device, as freeing memory does.
HIP_API hipFree(void* address) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (address == nullptr) return kOk;
  RETURN_IF_ERROR(refuse_during_capture());
  std::optional<Allocation> allocation = find_allocation(address);
  if (!allocation || allocation->base != address) return report(kInvalidValue);
  Device& device = *devices()[allocation->device];
  switch (allocation->owner) {
    case MemoryOwner::kArena:
      device.drain();
      if (!remove_allocation(address)) return report(kInvalidValue);
      return_to_arena(device, allocation->base, granules(allocation->bytes));
      return kOk;
    case MemoryOwner::kManagedMapping:
      device.drain();
      if (!remove_allocation(address)) return report(kInvalidValue);
      munmap(allocation->base, allocation->bytes);
      return kOk;
    default: return report(kInvalidValue);
  }
}

HIP_API hipMallocManaged(void** address, size_t bytes, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  size_t mapped = bytes == 0 ? kPage : round_up(bytes, kPage);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return report(kOutOfMemory);
  add_allocation(
      {static_cast<char*>(base), mapped, MemoryType::kManaged, MemoryOwner::kManagedMapping, current_device_id});
  *address = base;
  return kOk;
}

HIP_API hipHostMalloc(void** address, size_t bytes, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (posix_memalign(address, kPage, granules(bytes)) != 0) return report(kOutOfMemory);
  add_allocation({static_cast<char*>(*address), bytes == 0 ? 1 : bytes, MemoryType::kPinned, MemoryOwner::kHostHeap,
                  current_device_id});
  return kOk;
}

HIP_API hipHostFree(void* address) {
  RETURN_IF_ERROR(injected_fault(__func__));
  std::optional<Allocation> allocation = find_allocation(address);
  if (!allocation || allocation->base != address || allocation->owner != MemoryOwner::kHostHeap) {
    return report(kInvalidValue);
  }
  for (Device* device : devices()) device->drain();
  if (!remove_allocation(address)) return report(kInvalidValue);
  free(address);
  return kOk;
}

HIP_API hipMemGetInfo(size_t* unused, size_t* total) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  std::lock_guard lock(allocation_mutex());
  *total = device.capacity;
  *unused = device.capacity - device.used;
  return kOk;
}

struct PointerAttributes {
  int type;
  int device;
  const void* device_pointer;
  const void* host_pointer;
  int is_managed;
  unsigned flags;
};

HIP_API hipPointerGetAttributes(PointerAttributes* attributes, const void* address) {
  constexpr int no_device = -2;
  *attributes = {};
  attributes->device = no_device;
  std::optional<Allocation> allocation = find_allocation(address);
  if (!allocation) return kOk;
  attributes->type = static_cast<int>(allocation->type);
  attributes->device = allocation->device;
  attributes->device_pointer = address;
  if (allocation->type != MemoryType::kDevice) attributes->host_pointer = address;
  attributes->is_managed = allocation->type == MemoryType::kManaged;
  return kOk;
}

HIP_API hipMemAdvise(const void*, size_t, int, int) { return report(injected_fault(__func__)); }

}  // namespace hipcpu
