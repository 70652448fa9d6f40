// Runs the threads of one block on fibers, so that barriers and warp operations work.
#include "hip_fiber.h"

#include <sys/mman.h>

#include "hip_status.h"

// Saves the callee-saved registers on the stack in use, stores its pointer in *save, and continues on `load`.
extern "C" void hipcpu_swap_stacks(void** save, void* load);
asm(R"(
.text
.type hipcpu_swap_stacks,@function
hipcpu_swap_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hipcpu_swap_stacks,.-hipcpu_swap_stacks
)");

namespace hipcpu {

thread_local BlockRunner* current_runner = nullptr;

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kSavedRegisters = 6;

char* map_stack() {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return static_cast<char*>(stack);
}

void destroy(Fiber* fiber) {
  munmap(fiber->stack, kStackBytes);
  delete fiber;
}

}  // namespace

BlockRunner::~BlockRunner() {
  for (Fiber* fiber : idle_) destroy(fiber);
  for (Fiber* fiber : live_) destroy(fiber);
}

template <class Visit>
void BlockRunner::for_each_thread(Visit visit) {
  unsigned linear = 0;
  for (unsigned z = 0; z < context.bdim.z; z++) {
    for (unsigned y = 0; y < context.bdim.y; y++) {
      for (unsigned x = 0; x < context.bdim.x; x++) {
        visit(hipcpu_dim3{x, y, z}, linear++);
      }
    }
  }
}

int BlockRunner::run_plain() {
  current_ = nullptr;
  for_each_thread([this](hipcpu_dim3 thread, unsigned linear) {
    context.tid = thread;
    context.linear = linear;
    kernel(&context, arguments);
  });
  return kOk;
}

int BlockRunner::run_with_barriers() {
  start_all();
  while (!live_.empty()) {
    if (!resume_ready()) return kLaunchFailure;  // threads of a warp wait at different barriers
    retire_done();
  }
  return kOk;
}

void BlockRunner::start_all() {
  unsigned threads = context.bdim.x * context.bdim.y * context.bdim.z;
  unsigned warps = (threads + context.warp_size - 1) / context.warp_size;
  alive_in_warp_.assign(warps, 0);
  for_each_thread([this](hipcpu_dim3 thread, unsigned linear) {
    Fiber* fiber = take_fiber();
    fiber->thread = thread;
    fiber->linear = linear;
    resume(fiber);
    if (fiber->state == FiberState::kDone) {
      idle_.push_back(fiber);
    } else {
      live_.push_back(fiber);
      alive_in_warp_[linear / context.warp_size]++;
    }
  });
}

// Resumes the threads whose barrier is complete: all that are alive, of the block or of the warp, wait at it.
bool BlockRunner::resume_ready() {
  size_t at_block_barrier = 0;
  std::vector<unsigned> at_warp_barrier(alive_in_warp_.size(), 0);
  for (const Fiber* fiber : live_) {
    if (fiber->state == FiberState::kAtBlockBarrier) {
      at_block_barrier++;
    } else {
      at_warp_barrier[fiber->linear / context.warp_size]++;
    }
  }
  bool progress = false;
  for (Fiber* fiber : live_) {
    unsigned warp = fiber->linear / context.warp_size;
    bool ready = fiber->state == FiberState::kAtBlockBarrier ? at_block_barrier == live_.size()
                                                             : at_warp_barrier[warp] == alive_in_warp_[warp];
    if (!ready) continue;
    progress = true;
    resume(fiber);
  }
  return progress;
}

void BlockRunner::retire_done() {
  std::vector<Fiber*> still_live;
  for (Fiber* fiber : live_) {
    if (fiber->state == FiberState::kDone) {
      alive_in_warp_[fiber->linear / context.warp_size]--;
      idle_.push_back(fiber);
    } else {
      still_live.push_back(fiber);
    }
  }
  live_.swap(still_live);
}

bool BlockRunner::wait_at_barrier(FiberState which) {
  if (current_ == nullptr) return false;
  Fiber* fiber = current_;
  fiber->state = which;
  hipcpu_swap_stacks(&fiber->stack_pointer, scheduler_stack_pointer_);
  return true;
}

Fiber* BlockRunner::take_fiber() {
  Fiber* fiber;
  if (idle_.empty()) {
    fiber = new Fiber{};
    fiber->stack = map_stack();
  } else {
    fiber = idle_.back();
    idle_.pop_back();
  }
  // What hipcpu_swap_stacks pops: the saved registers, then where to go. The null keeps the stack aligned.
  void** top = reinterpret_cast<void**>(fiber->stack + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&BlockRunner::fiber_main);
  for (int i = 0; i < kSavedRegisters; i++) *--top = nullptr;
  fiber->stack_pointer = top;
  return fiber;
}

void BlockRunner::resume(Fiber* fiber) {
  current_ = fiber;
  context.tid = fiber->thread;
  context.linear = fiber->linear;
  fiber->state = FiberState::kRunning;
  hipcpu_swap_stacks(&scheduler_stack_pointer_, fiber->stack_pointer);
}

void BlockRunner::fiber_main() {
  BlockRunner* runner = current_runner;
  runner->kernel(&runner->context, runner->arguments);
  runner->current_->state = FiberState::kDone;
  hipcpu_swap_stacks(&runner->current_->stack_pointer, runner->scheduler_stack_pointer_);
  __builtin_trap();  // a fiber that is done is never resumed
}

}  // namespace hipcpu
