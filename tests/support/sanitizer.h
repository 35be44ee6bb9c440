/* What a test cannot do under a sanitizer. GCC defines macros, Clang has __has_feature. */
#ifndef NM_TEST_SANITIZER_H
#define NM_TEST_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#ifndef ADDRESS_SANITIZER
#define ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#ifndef THREAD_SANITIZER
#define THREAD_SANITIZER 0
#endif

/* Both have a separate allocator, which a test cannot replace. */
#define REPLACES_ALLOCATOR (!ADDRESS_SANITIZER && !THREAD_SANITIZER)

/* ThreadSanitizer ends a process that was forked by one with several threads when it starts a thread. */
#define FORKED_PROCESS_STARTS_THREADS (!THREAD_SANITIZER)

#endif
