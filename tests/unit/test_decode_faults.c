/* Decoding on two threads without enough memory: every call that cannot allocate device memory fails with
 * NM_MEMORY, and the same decoder translates as usual afterwards. */
#include "decode_search.h"
#include "support/sanitizer.h"

#if REPLACES_ALLOCATOR
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long countdown = -1; /* device allocations until the one that fails; negative: none fails */

/* Replaces that of the C library. Only nm_backend_alloc reserves no memory. */
void *mmap(void *address, size_t bytes, int access, int flags, int file, off_t offset)
{
    if (flags & MAP_NORESERVE && countdown >= 0 && countdown-- == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, bytes, access, flags, file, offset);
}

static void test_workers_without_memory(void **state)
{
    (void)state;
    enum { THREADS = 2 };
    nm_backend *backend = backend_of("cpu", NM_F32, THREADS, false);
    tiny made = tiny_create(backend, WORDS, 1, NULL);
    corpus *text = random_corpus();
    nm_translation want[SOURCES], got[SOURCES];
    decode_all(&made.model, 1, decode_of(&made), text->list, SOURCES, want);
    nm_error err = {0};
    int32_t failed = 0;
    for (nm_status status = NM_MEMORY; status != NM_OK; failed += status != NM_OK) {
        nm_decoder *decoder;
        assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err),
                         NM_OK);
        countdown = failed;
        status = nm_decode(decoder, text->list, SOURCES, got, &err);
        countdown = -1;
        if (status != NM_OK) {
            assert_int_equal(status, NM_MEMORY);
            assert_int_equal(nm_decode(decoder, text->list, SOURCES, got, &err), NM_OK);
        }
        for (size_t s = 0; s < SOURCES; s++)
            assert_same(&got[s], &want[s]);
        release_all(got, SOURCES);
        nm_decoder_free(decoder);
    }
    assert_true(failed > THREADS * 6); /* at least the blocks of the workers' scorers */
    release_all(want, SOURCES);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}
#else
static void test_workers_without_memory(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
