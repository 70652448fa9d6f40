// What tests can set and see: faults to inject, speeds, a record of what the engines did.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace hipcpu {

// A number from the environment, or what stands in for it.
double environment_number(const char* name, double otherwise);

// The least time of a kernel, as set.
double least_kernel_microseconds();

// The status that a test wants of this call, or kOk. A runtime function asks with its own name, the engines with
// "async:kernel" and "async:copy", and with ":" and the number of their device behind that.
int injected_fault(const char* what);

uint64_t now_nanoseconds();

struct TraceEntry {
  int device;
  uint64_t stream;
  const char* kind;
  std::string name;
  size_t bytes;
  uint64_t begin;
  uint64_t end;
};
bool is_tracing();
void trace(TraceEntry entry);

}  // namespace hipcpu
