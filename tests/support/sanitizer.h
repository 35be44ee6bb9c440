/* Whether a sanitizer replaces the allocator, so that a test cannot. GCC defines macros, Clang has __has_feature. */
#ifndef NM_TEST_SANITIZER_H
#define NM_TEST_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACES_ALLOCATOR 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define REPLACES_ALLOCATOR 0
#endif
#endif
#ifndef REPLACES_ALLOCATOR
#define REPLACES_ALLOCATOR 1
#endif

#endif
