// The last error of a thread, and the names of status codes.
#include <utility>

#include "hip_status.h"

namespace hipcpu {

static thread_local int last_error = kOk;

int report(int status) {
  if (status != kOk && status != kNotReady) last_error = status;
  return status;
}

HIP_API hipGetLastError() { return std::exchange(last_error, kOk); }

HIP_API hipPeekAtLastError() { return last_error; }

HIPCPU_EXPORT const char* hipGetErrorName(int status) {
  switch (status) {
    case kOk: return "hipSuccess";
    case kInvalidValue: return "hipErrorInvalidValue";
    case kOutOfMemory: return "hipErrorOutOfMemory";
    case kInvalidConfiguration: return "hipErrorInvalidConfiguration";
    case kInvalidDevice: return "hipErrorInvalidDevice";
    case kInvalidImage: return "hipErrorInvalidImage";
    case kInvalidContext: return "hipErrorInvalidContext";
    case kNoBinaryForGpu: return "hipErrorNoBinaryForGpu";
    case kFileNotFound: return "hipErrorFileNotFound";
    case kInvalidHandle: return "hipErrorInvalidHandle";
    case kNotFound: return "hipErrorNotFound";
    case kNotReady: return "hipErrorNotReady";
    case kIllegalAddress: return "hipErrorIllegalAddress";
    case kPeerAccessAlreadyEnabled: return "hipErrorPeerAccessAlreadyEnabled";
    case kPeerAccessNotEnabled: return "hipErrorPeerAccessNotEnabled";
    case kAssert: return "hipErrorAssert";
    case kLaunchFailure: return "hipErrorLaunchFailure";
    case kNotSupported: return "hipErrorNotSupported";
    case kCaptureUnsupported: return "hipErrorStreamCaptureUnsupported";
    case kCaptureInvalidated: return "hipErrorStreamCaptureInvalidated";
    case kCaptureMerge: return "hipErrorStreamCaptureMerge";
    case kCaptureUnmatched: return "hipErrorStreamCaptureUnmatched";
    case kCaptureUnjoined: return "hipErrorStreamCaptureUnjoined";
    case kCaptureIsolation: return "hipErrorStreamCaptureIsolation";
    case kCaptureImplicit: return "hipErrorStreamCaptureImplicit";
    case kCapturedEvent: return "hipErrorCapturedEvent";
    default: return "hipErrorUnknown";
  }
}

HIPCPU_EXPORT const char* hipGetErrorString(int status) { return hipGetErrorName(status); }

}  // namespace hipcpu
