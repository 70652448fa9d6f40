// Turns the traps of device work into a status: signal handlers that jump back to where the work began.
#include "hip_trap.h"

#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <memory>
#include <mutex>

#include "../include/hipcpu_abi.h"
#include "hip_status.h"

namespace hipcpu {

namespace {

constexpr size_t kSignalStackBytes = 64 << 10;

// Where a trap of the running work goes, null while this thread runs none.
thread_local sigjmp_buf* trap_target = nullptr;
thread_local int trap_status = kOk;

struct sigaction earlier_on_bad_address;
struct sigaction earlier_on_bad_arithmetic;

// Not ours: what was installed before gets the signal.
void pass_on(int signal_number, siginfo_t* info, void* context) {
  const auto& earlier = signal_number == SIGFPE ? earlier_on_bad_arithmetic : earlier_on_bad_address;
  if ((earlier.sa_flags & SA_SIGINFO) != 0 && earlier.sa_sigaction != nullptr) {
    earlier.sa_sigaction(signal_number, info, context);
  } else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) {
    earlier.sa_handler(signal_number);
  } else {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

void on_signal(int signal_number, siginfo_t* info, void* context) {
  if (trap_target == nullptr) {
    pass_on(signal_number, info, context);
    return;
  }
  trap_status = signal_number == SIGFPE ? kLaunchFailure : kIllegalAddress;
  siglongjmp(*trap_target, 1);
}

void install_signal_handlers() {
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // the handler is left by a jump: nothing may stay blocked
  sigaction(SIGSEGV, &action, &earlier_on_bad_address);
  sigaction(SIGFPE, &action, &earlier_on_bad_arithmetic);
}

// A bad address may be the end of a fiber's stack: the handler needs a stack of its own.
class SignalStack {
 public:
  SignalStack() {
    stack_t stack{};
    stack.ss_sp = memory_.get();
    stack.ss_size = kSignalStackBytes;
    sigaltstack(&stack, nullptr);
  }
  ~SignalStack() {
    stack_t stack{};
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_{new char[kSignalStackBytes]};
};

void prepare_thread_for_traps() {
  static std::once_flag installed;
  std::call_once(installed, install_signal_handlers);
  static thread_local SignalStack stack;
}

}  // namespace

// A trap jumps back to here: no object with a destructor may live in this function.
int run_until_trap(int (*work)(void*), void* argument) {
  prepare_thread_for_traps();
  sigjmp_buf target;
  if (sigsetjmp(target, 0) != 0) {
    trap_target = nullptr;
    return trap_status;
  }
  trap_target = &target;
  int status = work(argument);
  trap_target = nullptr;
  return status;
}

HIPCPU_EXPORT void hipcpu_trap(int status) {
  trap_status = status;
  siglongjmp(*trap_target, 1);
}

}  // namespace hipcpu
