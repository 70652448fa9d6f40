// Runs the grid of a kernel on the calling thread, and turns its traps into a status.
#include "hip_grid.h"

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>

#include "hip_control.h"
#include "hip_fiber.h"
#include "hip_status.h"

namespace hipcpu {

namespace {

constexpr size_t kSignalStackBytes = 64 << 10;
constexpr size_t kSharedAlignment = 64;

// Where a trap of the running kernel goes, null while this thread runs none.
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
  trap_status = signal_number == SIGSEGV ? kIllegalAddress : kLaunchFailure;
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

int run_blocks(BlockRunner& runner, const Grid& grid) {
  for (unsigned z = 0; z < grid.blocks.z; z++) {
    for (unsigned y = 0; y < grid.blocks.y; y++) {
      for (unsigned x = 0; x < grid.blocks.x; x++) {
        runner.context.bid = {x, y, z};
        int status = grid.has_barriers ? runner.run_with_barriers() : runner.run_plain();
        if (status != kOk) return status;
      }
    }
  }
  return kOk;
}

// A trap jumps back to here: no object with a destructor may live in this function.
int run_blocks_until_trap(BlockRunner& runner, const Grid& grid) {
  sigjmp_buf target;
  if (sigsetjmp(target, 0) != 0) {
    trap_target = nullptr;
    return trap_status;
  }
  trap_target = &target;
  int status = run_blocks(runner, grid);
  trap_target = nullptr;
  return status;
}

// Kept from launch to launch, with its fibers.
thread_local std::unique_ptr<BlockRunner> kept_runner;

BlockRunner& runner_of_this_thread() {
  if (!kept_runner) kept_runner = std::make_unique<BlockRunner>();
  current_runner = kept_runner.get();
  return *kept_runner;
}

// After a trap the fibers stand anywhere: they are leaked.
void abandon_runner_of_this_thread() { (void)kept_runner.release(); }

void wait_at_barrier(FiberState which) {
  if (!current_runner->wait_at_barrier(which)) hipcpu_trap(kLaunchFailure);
}

}  // namespace

int warp_size() {
  static const int size = static_cast<int>(environment_number("HIPCPU_WARP", kDefaultWarpSize));
  return size;
}

int run_grid(const Grid& grid) {
  prepare_thread_for_traps();
  std::vector<void*> arguments;
  for (size_t offset : grid.offsets) arguments.push_back(const_cast<char*>(grid.values.data()) + offset);
  std::vector<char> shared(grid.shared_bytes + kSharedAlignment);
  void* aligned = shared.data();
  size_t space = shared.size();
  std::align(kSharedAlignment, grid.shared_bytes, aligned, space);

  BlockRunner& runner = runner_of_this_thread();
  runner.kernel = grid.kernel->run;
  runner.arguments = arguments.data();
  runner.context.gdim = grid.blocks;
  runner.context.bdim = grid.threads;
  runner.context.warp_size = static_cast<unsigned>(warp_size());
  runner.context.dynshared = aligned;
  int status = run_blocks_until_trap(runner, grid);
  if (status != kOk) abandon_runner_of_this_thread();
  return status;
}

// What kernels call.

HIPCPU_EXPORT void hipcpu_barrier() { wait_at_barrier(FiberState::kAtBlockBarrier); }

HIPCPU_EXPORT void hipcpu_warp_barrier() { wait_at_barrier(FiberState::kAtWarpBarrier); }

HIPCPU_EXPORT void hipcpu_trap(int status) {
  trap_status = status;
  siglongjmp(*trap_target, 1);
}

}  // namespace hipcpu
