// Copies and fills, in stream order.
#include <cstdlib>
#include <cstring>

#include "hip_control.h"
#include "hip_device.h"
#include "hip_memory.h"
#include "hip_trap.h"

namespace hipcpu {

namespace {

// Managed memory counts as the device's.
bool is_on_device(MemoryType type) { return type == MemoryType::kDevice || type == MemoryType::kManaged; }

bool is_between_devices(const std::optional<Allocation>& to, const std::optional<Allocation>& from) {
  return to && from && to->type == MemoryType::kDevice && from->type == MemoryType::kDevice &&
         to->device != from->device;
}

OpKind copy_kind(const void* to, const void* from) {
  if (is_between_devices(find_allocation(to), find_allocation(from))) return OpKind::kPeer;
  if (!is_on_device(memory_type(to))) return OpKind::kDeviceToHost;
  return is_on_device(memory_type(from)) ? OpKind::kDeviceToDevice : OpKind::kHostToDevice;
}

bool is_pageable_staged() {
  static const bool staged = [] {
    const char* chosen = getenv("HIPCPU_PAGEABLE");
    return chosen != nullptr && strcmp(chosen, "async") == 0;
  }();
  return staged;
}

// Queues a copy. As on hardware, only pinned memory leaves the caller free: with pageable memory on the host side
// the call waits until the copy is done. HIPCPU_PAGEABLE=async stages what comes from pageable memory at once
// instead, and waits only for what goes to pageable memory.
int copy_async(void* to, const void* from, size_t bytes, const StreamPtr& stream) {
  if (!is_within_allocation(to, bytes) || !is_within_allocation(from, bytes)) return kInvalidValue;
  Op op{copy_kind(to, from)};
  op.bytes = bytes;
  op.run = [=](int) {
    return run_until_trap([=] {
      memmove(to, from, bytes);
      return kOk;
    });
  };
  bool waits = memory_type(to) == MemoryType::kPageable || memory_type(from) == MemoryType::kPageable;
  if (is_pageable_staged() && op.kind == OpKind::kHostToDevice && waits && !is_capturing(*stream)) {
    auto* first = static_cast<const char*>(from);
    op.run = [to, staged = std::vector<char>(first, first + bytes)](int) {
      return run_until_trap([&] {
        memcpy(to, staged.data(), staged.size());
        return kOk;
      });
    };
    waits = false;
  }
  uint64_t position = 0;
  if (int status = submit(stream, std::move(op), &position)) return status;
  if (!waits || position == 0) return kOk;
  stream->wait_for(position);
  return stream->device.lost;
}

int fill_async(void* to, int value, size_t bytes, const StreamPtr& stream) {
  if (!is_within_allocation(to, bytes)) return kInvalidValue;
  Op op{OpKind::kMemset};
  op.bytes = bytes;
  op.run = [=](int) {
    return run_until_trap([=] {
      memset(to, value, bytes);
      return kOk;
    });
  };
  return submit(stream, std::move(op));
}

}  // namespace

HIP_API hipMemcpyAsync(void* to, const void* from, size_t bytes, int, void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(current_device().lost);
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  return report(copy_async(to, from, bytes, stream));
}

HIP_API hipMemcpy(void* to, const void* from, size_t bytes, int) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  RETURN_IF_ERROR(refuse_during_capture());
  RETURN_IF_ERROR(copy_async(to, from, bytes, device.null_stream));
  device.null_stream->wait_for_all();
  return report(device.lost);
}

HIP_API hipMemcpyPeer(void* to, int, const void* from, int, size_t bytes) { return hipMemcpy(to, from, bytes, 0); }

HIP_API hipMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* handle) {
  return hipMemcpyAsync(to, from, bytes, 0, handle);
}

HIP_API hipMemsetAsync(void* to, int value, size_t bytes, void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  RETURN_IF_ERROR(current_device().lost);
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  return report(fill_async(to, value, bytes, stream));
}

HIP_API hipMemset(void* to, int value, size_t bytes) {
  RETURN_IF_ERROR(injected_fault(__func__));
  Device& device = current_device();
  RETURN_IF_ERROR(device.lost);
  RETURN_IF_ERROR(fill_async(to, value, bytes, device.null_stream));
  device.null_stream->wait_for_all();
  return kOk;
}

// Managed memory is everywhere at once here: a prefetch only takes the time of its copy.
HIP_API hipMemPrefetchAsync(const void*, size_t bytes, int, void* handle) {
  RETURN_IF_ERROR(injected_fault(__func__));
  StreamPtr stream = find_stream(handle);
  if (!stream) return report(kInvalidHandle);
  Op op{OpKind::kHostToDevice};
  op.bytes = bytes;
  op.run = [](int) { return kOk; };
  return report(submit(stream, std::move(op)));
}

}  // namespace hipcpu
