#include "fiber.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace emulated_cuda {

Stack::Stack() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapping = mmap(nullptr, page + kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, page, PROT_NONE) != 0) std::abort();
  mapping_ = static_cast<char*>(mapping);
  bottom_ = mapping_ + page;
}

Stack::~Stack() {
  forget_frames();
  munmap(mapping_, static_cast<size_t>(bottom_ - mapping_) + kBytes);
}

void Stack::forget_frames() const { ASAN_UNPOISON_MEMORY_REGION(bottom_, kBytes); }

#if defined(__x86_64__)

// Pushes the registers that a called function must preserve by the System V ABI to the old stack, and pops them from the new
// one.
asm(R"(
.text
.globl emulated_cuda_switch
.hidden emulated_cuda_switch
.type emulated_cuda_switch, @function
emulated_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_cuda_switch, .-emulated_cuda_switch
)");
extern "C" __attribute__((visibility("hidden"))) void emulated_cuda_switch(void** save, void* load);

void Fiber::prepare(const Stack& stack, void (*function)()) {
  stack.forget_frames();
  auto** top = reinterpret_cast<void**>(stack.bottom() + Stack::kBytes);
  *--top = nullptr;                               // the return address: a function begins 8 bytes off a multiple of 16
  *--top = reinterpret_cast<void*>(function);     // the target of `ret`
  for (int i = 0; i < 6; ++i) *--top = nullptr;   // the registers
  stack_pointer = top;
}

void switch_fibers(Fiber& from, Fiber& to) { emulated_cuda_switch(&from.stack_pointer, to.stack_pointer); }

#else

void Fiber::prepare(const Stack& stack, void (*function)()) {
  stack.forget_frames();
  getcontext(&context);
  context.uc_stack.ss_sp = stack.bottom();
  context.uc_stack.ss_size = Stack::kBytes;
  context.uc_link = nullptr;
  makecontext(&context, function, 0);
}

void switch_fibers(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

#endif

}  // namespace emulated_cuda
