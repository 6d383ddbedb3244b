// A library that waits where no thread may make an inferior call: in a constructor, thus with the loader's code below
// it on the stack, or (AS_ALLOCATOR) as a library that exports malloc and waits inside of itself. Both wait in the
// way that the program that loads them defines by `test_wait_for_end`, which it exports.
#include <stddef.h>

extern void test_wait_for_end(void) __attribute__((weak));

#ifdef AS_ALLOCATOR
void* malloc(size_t size) {
  (void)size;
  return NULL;
}
void wait_in_allocator(void) {
  test_wait_for_end();
  __asm__ volatile("");   // no jump in place of the call
}
#else
__attribute__((constructor)) static void wait_in_constructor(void) {
  test_wait_for_end();
  __asm__ volatile("");
}
#endif
