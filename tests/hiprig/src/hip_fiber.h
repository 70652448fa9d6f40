// Runs the threads of one block on fibers, so that barriers and warp operations work.
#pragma once
#include <cstddef>
#include <vector>

#include "../include/hipcpu_abi.h"

namespace hipcpu {

enum class FiberState { kRunning, kDone, kAtBlockBarrier, kAtWarpBarrier };

// One thread of a block: a stack of its own, and where it stands.
struct Fiber {
  char* stack;
  void* stack_pointer;
  FiberState state;
  unsigned linear;
  hipcpu_dim3 thread;
};

// Runs block after block of a kernel on the calling thread. Stacks are kept for the next block: a thread that
// never waits costs one stack switch.
class BlockRunner {
 public:
  BlockRunner() = default;
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Runs the block of `context` as a loop, for kernels whose threads never wait for one another.
  int run_plain();

  // Runs the block of `context` on fibers. Returns 0, or the status of a barrier that not all threads reach.
  int run_with_barriers();

  // Called by kernel code: the current thread waits for its block or its warp. False outside of a fiber.
  bool wait_at_barrier(FiberState which);

  hipcpu_ctx context{};
  void (*kernel)(hipcpu_ctx*, void**) = nullptr;
  void** arguments = nullptr;

 private:
  static void fiber_main();
  Fiber* take_fiber();
  void resume(Fiber* fiber);
  void start_all();
  bool resume_ready();
  void retire_done();
  template <class Visit>
  void for_each_thread(Visit visit);

  void* scheduler_stack_pointer_ = nullptr;
  Fiber* current_ = nullptr;
  std::vector<Fiber*> idle_;
  std::vector<Fiber*> live_;  // started and not done: all of them wait at some barrier
  std::vector<unsigned> alive_in_warp_;
};

// The runner of the kernel that this thread executes.
extern thread_local BlockRunner* current_runner;

}  // namespace hipcpu
