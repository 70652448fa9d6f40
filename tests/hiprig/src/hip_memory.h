// What the runtime knows about addresses.
#pragma once
#include <cstddef>
#include <mutex>
#include <optional>

namespace hipcpu {

enum class MemoryType { kPageable = 0, kPinned = 1, kDevice = 2, kManaged = 3 };  // the numbers of hipMemoryType

// Who gives the memory back.
enum class MemoryOwner { kArena, kHostHeap, kManagedMapping, kModule, kOtherProcess };

struct Allocation {
  char* base;
  size_t bytes;
  MemoryType type;
  MemoryOwner owner;
  int device;
};

constexpr size_t kPage = 4096;
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
constexpr size_t round_down(size_t value, size_t unit) { return value / unit * unit; }

// Guards the allocations, and the arenas of the devices.
std::mutex& allocation_mutex();

void add_allocation(const Allocation& allocation);

// Forgets an allocation; false if none begins there.
bool remove_allocation(void* base);

// The allocation that an address lies in.
std::optional<Allocation> find_allocation(const void* address);

MemoryType memory_type(const void* address);

// False if a range begins in an allocation and ends outside of it, or begins in freed memory of a device.
bool is_within_allocation(const void* begin, size_t bytes);

}  // namespace hipcpu
