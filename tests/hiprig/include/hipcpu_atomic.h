// Atomic operations of kernels. They are real ones: blocks of different streams run on different threads.
#pragma once

// Replaces *address by change(old, operand), and gives the old value.
template <class T>
static inline T hipcpu_replace(T* address, T operand, T (*change)(T, T)) {
  T old_value;
  T new_value;
  __atomic_load(address, &old_value, __ATOMIC_RELAXED);
  do {
    new_value = change(old_value, operand);
  } while (!__atomic_compare_exchange(address, &old_value, &new_value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old_value;
}

#define HIPCPU_ATOMIC(NAME, T, EXPRESSION)                                  \
  static inline T NAME(T* address, T operand) {                             \
    return hipcpu_replace<T>(address, operand, [](T old_value, T operand) { \
      (void)old_value;                                                      \
      return (T)(EXPRESSION);                                               \
    });                                                                     \
  }

#define HIPCPU_ATOMICS_OF_NUMBERS(T)                                     \
  HIPCPU_ATOMIC(atomicAdd, T, old_value + operand)                       \
  HIPCPU_ATOMIC(atomicMax, T, old_value > operand ? old_value : operand) \
  HIPCPU_ATOMIC(atomicMin, T, old_value < operand ? old_value : operand) \
  HIPCPU_ATOMIC(atomicExch, T, operand)

#define HIPCPU_ATOMICS_OF_INTEGERS(T)                                                                   \
  HIPCPU_ATOMICS_OF_NUMBERS(T)                                                                          \
  HIPCPU_ATOMIC(atomicSub, T, old_value - operand)                                                      \
  HIPCPU_ATOMIC(atomicAnd, T, (old_value & operand))                                                    \
  HIPCPU_ATOMIC(atomicOr, T, old_value | operand)                                                       \
  HIPCPU_ATOMIC(atomicXor, T, old_value ^ operand)                                                      \
  static inline T atomicCAS(T* address, T expected, T desired) {                                        \
    __atomic_compare_exchange(address, &expected, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return expected;                                                                                    \
  }

HIPCPU_ATOMICS_OF_INTEGERS(int)
HIPCPU_ATOMICS_OF_INTEGERS(unsigned)
HIPCPU_ATOMICS_OF_INTEGERS(unsigned long long)
HIPCPU_ATOMICS_OF_NUMBERS(float)
HIPCPU_ATOMICS_OF_NUMBERS(double)
