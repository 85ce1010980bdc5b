// Coroutines with separate stacks. On x86-64 switching takes a few instructions, because kernels switch at every operation of a
// warp; other processors use ucontext, with a system call each time.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated_cuda {

// Memory for the stack of one coroutine, with an inaccessible page below it.
class Stack {
 public:
  static constexpr size_t kBytes = 128 << 10;
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  char* bottom() const { return bottom_; }
  // Tells AddressSanitizer that the stack is unused: a coroutine ends without leaving its functions.
  void forget_frames() const;

 private:
  char* mapping_;
  char* bottom_;
};

class Fiber {
 public:
  // The point at which it resumes. A fiber without a stack is the thread that switches first.
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  // The next switch to it calls the function, which must not return.
  void prepare(const Stack& stack, void (*function)());
};

void switch_fibers(Fiber& from, Fiber& to);

}  // namespace emulated_cuda
