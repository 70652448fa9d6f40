// Memory: allocations of devices, pinned host memory, managed memory, and what is asked about addresses.
#include "hip_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "hip_control.h"
#include "hip_device.h"

namespace hipcpu {

namespace {

constexpr size_t kWorthGivingBack = 1 << 20;
constexpr int kNewPoison = 0xcd;
constexpr int kFreedPoison = 0xdd;

void poison(void* base, int byte, size_t bytes) {
  static const bool wanted = getenv("HIPCPU_POISON") != nullptr;
  if (wanted) memset(base, byte, bytes);
}

// Never destroyed: streams still run while the process exits.
std::map<char*, Allocation>& allocations = *new std::map<char*, Allocation>;

// Pages keep allocations apart, so that each can be opened and closed on its own.
size_t pages(size_t bytes) { return bytes == 0 ? kPage : round_up(bytes, kPage); }

// In the first hole that is large enough, with a closed page behind; null if the device has no room.
char* take_from_arena(Device& device, size_t bytes) {
  size_t fenced = bytes + kPage;
  std::lock_guard lock(allocation_mutex());
  if (device.used + bytes > device.limit) return nullptr;
  for (auto [offset, size] : device.holes) {
    if (size < fenced) continue;
    if (mprotect(device.arena + offset, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    device.holes.erase(offset);
    if (size > fenced) device.holes[offset + fenced] = size - fenced;
    device.used += bytes;
    return device.arena + offset;
  }
  return nullptr;
}

void return_to_arena(Device& device, char* base, size_t bytes) {
  size_t offset = static_cast<size_t>(base - device.arena);
  std::lock_guard lock(allocation_mutex());
  device.used -= bytes;
  if (bytes >= kWorthGivingBack) madvise(base, bytes, MADV_REMOVE);  // the arena's file would keep them
  mprotect(base, bytes, PROT_NONE);                                  // who uses it still has a bad address
  bytes += kPage;
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

bool is_in_an_arena(const void* address) {
  for (const Device* device : devices()) {
    if (address >= device->arena && address < device->arena + device->arena_bytes) return true;
  }
  return false;
}

bool is_within_allocation(const void* begin, size_t bytes) {
  std::optional<Allocation> allocation = find_allocation(begin);
  if (!allocation) return !is_in_an_arena(begin);
  return static_cast<const char*>(begin) + bytes <= allocation->base + allocation->bytes;
}

HIP_API hipMalloc(void** address, size_t bytes) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  RETURN_IF_ERROR(refuse_during_capture());
  *address = nullptr;
  char* base = take_from_arena(device, pages(bytes));
  if (base == nullptr) return report(kOutOfMemory);
  poison(base, kNewPoison, pages(bytes));
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
      return_to_arena(device, allocation->base, pages(allocation->bytes));
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
  size_t mapped = pages(bytes);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return report(kOutOfMemory);
  add_allocation(
      {static_cast<char*>(base), mapped, MemoryType::kManaged, MemoryOwner::kManagedMapping, current_device_id});
  *address = base;
  return kOk;
}

HIP_API hipHostMalloc(void** address, size_t bytes, unsigned) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (posix_memalign(address, kPage, pages(bytes)) != 0) return report(kOutOfMemory);
  poison(*address, kNewPoison, bytes);
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
  poison(address, kFreedPoison, allocation->bytes);
  free(address);
  return kOk;
}

HIP_API hipMemGetInfo(size_t* unused, size_t* total) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  std::lock_guard lock(allocation_mutex());
  *total = device.limit;
  *unused = device.limit - std::min(device.limit, device.used);
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
