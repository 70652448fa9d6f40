// Turns the traps of device work (a bad address, a division by zero, what kernels call) into a status.
#pragma once

namespace hipcpu {

int run_until_trap(int (*work)(void*), void* argument);

// Runs device work on this thread and gives its status, or that of the trap that ended it: no destructor of what the
// work had on its stack runs then.
template <class Work>
int run_until_trap(const Work& work) {
  auto call = [](void* argument) -> int { return (*static_cast<const Work*>(argument))(); };
  return run_until_trap(call, const_cast<Work*>(&work));
}

}  // namespace hipcpu
