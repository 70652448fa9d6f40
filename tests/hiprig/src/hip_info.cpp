// What devices say about themselves.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "hip_control.h"
#include "hip_device.h"
#include "hip_grid.h"

namespace hipcpu {

namespace {

constexpr int kVersion = 70051831;
constexpr int kMaxThreadsPerBlock = 1024;
constexpr int kMaxThreadsPerMultiprocessor = 2048;
constexpr int kMultiprocessors = 16;
constexpr int kRegistersPerBlock = 65536;
constexpr int kSharedBytesPerBlock = 65536;
constexpr int kCopyEngines = 2;
constexpr int kMajor = 11;
constexpr int kMinor = 0;

enum Attribute : int {
  kAsyncEngineCount = 2,
  kConcurrentKernels = 8,
  kConcurrentManagedAccess = 9,
  kDeviceOverlap = 12,
  kComputeCapabilityMajor = 23,
  kManagedMemory = 24,
  kMaxThreadsPerBlockAttribute = 56,
  kMaxThreadsPerMultiprocessorAttribute = 57,
  kComputeCapabilityMinor = 61,
  kMultiprocessorCount = 63,
  kMaxRegistersPerBlock = 71,
  kMaxSharedMemoryPerBlock = 74,
  kStreamPrioritiesSupported = 78,
  kUnifiedAddressing = 85,
  kWarpSize = 87,
};

int value_of(int attribute) {
  switch (attribute) {
    case kAsyncEngineCount: return kCopyEngines;
    case kConcurrentKernels:
    case kConcurrentManagedAccess:
    case kDeviceOverlap:
    case kManagedMemory:
    case kStreamPrioritiesSupported:
    case kUnifiedAddressing: return 1;
    case kComputeCapabilityMajor: return kMajor;
    case kComputeCapabilityMinor: return kMinor;
    case kMaxThreadsPerBlockAttribute: return kMaxThreadsPerBlock;
    case kMaxThreadsPerMultiprocessorAttribute: return kMaxThreadsPerMultiprocessor;
    case kMultiprocessorCount: return kMultiprocessors;
    case kMaxRegistersPerBlock: return kRegistersPerBlock;
    case kMaxSharedMemoryPerBlock: return kSharedBytesPerBlock;
    case kWarpSize: return warp_size();
    default: return 0;
  }
}

}  // namespace

// hipDeviceProp_tR0600, with the names that HIP gives; what the rig leaves at zero is one array.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
  int kernelExecTimeoutEnabled;
  int integrated;
  int canMapHostMemory;
  int computeMode;
  int textureLimits[40];
  size_t surfaceAlignment;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryClockRate;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int isMultiGpuBoard;
  int multiGpuBoardGroupID;
  int hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio;
  int pageableMemoryAccess;
  int concurrentManagedAccess;
  int computePreemptionSupported;
  int canUseHostPointerForRegisteredMem;
  int cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables;
  int directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int otherAbilities[13];
  int reserved[63];
  int hipReserved[32];
  char gcnArchName[256];
  size_t maxSharedMemoryPerMultiProcessor;
  int clockInstructionRate;
  unsigned arch;  // one bit for each feature of the architecture
  void* hdpMemFlushCntl;
  void* hdpRegFlushCntl;
  int lastAbilities[6];
};
static_assert(sizeof(DeviceProperties) == 1472);
static_assert(offsetof(DeviceProperties, surfaceAlignment) == 568);
static_assert(offsetof(DeviceProperties, streamPrioritiesSupported) == 628);
static_assert(offsetof(DeviceProperties, gcnArchName) == 1160);
static_assert(offsetof(DeviceProperties, arch) == 1428);

HIP_API hipGetDevicePropertiesR0600(DeviceProperties* properties, int device) {
  RETURN_IF_ERROR(injected_fault(__func__));
  if (!is_device(device)) return report(kInvalidDevice);
  *properties = {};
  snprintf(properties->name, sizeof properties->name, "HIP on CPU %d", device);
  snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "gfx1100");
  properties->totalGlobalMem = devices()[device]->capacity;
  properties->sharedMemPerBlock = kSharedBytesPerBlock;
  properties->regsPerBlock = kRegistersPerBlock;
  properties->warpSize = warp_size();
  properties->maxThreadsPerBlock = kMaxThreadsPerBlock;
  std::fill_n(properties->maxThreadsDim, 3, kMaxThreadsPerBlock);
  std::fill_n(properties->maxGridSize, 3, 0x7fffffff);
  properties->clockRate = 1000000;
  properties->major = kMajor;
  properties->minor = kMinor;
  properties->multiProcessorCount = kMultiprocessors;
  properties->canMapHostMemory = 1;
  properties->concurrentKernels = 1;
  properties->pciBusID = device + 1;
  properties->asyncEngineCount = kCopyEngines;
  properties->unifiedAddressing = 1;
  properties->maxThreadsPerMultiProcessor = kMaxThreadsPerMultiprocessor;
  properties->streamPrioritiesSupported = 1;
  properties->managedMemory = 1;
  properties->concurrentManagedAccess = 1;
  properties->arch = 0x1ffff;
  return kOk;
}

HIP_API hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) return report(kInvalidDevice);
  *value = value_of(attribute);
  return kOk;
}

HIP_API hipDeviceGetPCIBusId(char* id, int bytes, int device) {
  snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
  return kOk;
}

HIP_API hipDeviceGetByPCIBusId(int* device, const char* id) {
  constexpr size_t domain_characters = 5;  // "0000:"
  *device = static_cast<int>(strtol(id + domain_characters, nullptr, 16)) - 1;
  return report(is_device(*device) ? kOk : kInvalidDevice);
}

HIP_API hipRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kOk;
}

HIP_API hipDriverGetVersion(int* version) {
  *version = kVersion;
  return kOk;
}

}  // namespace hipcpu
