// Status codes of the HIP runtime, and how its functions begin and end.
#pragma once

#define HIPCPU_EXPORT extern "C" __attribute__((visibility("default")))
#define HIP_API HIPCPU_EXPORT int

// Leaves a runtime function, and remembers the status, if an expression gives one other than success.
#define RETURN_IF_ERROR(expression)                         \
  do {                                                      \
    if (int status_ = (expression)) return report(status_); \
  } while (false)

namespace hipcpu {

enum Status : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kFileNotFound = 301,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kAssert = 710,
  kLaunchFailure = 719,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
};

// Remembers a status for hipGetLastError, unless it is success or "not ready", and gives it back.
int report(int status);

}  // namespace hipcpu
