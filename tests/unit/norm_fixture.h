/* A backend, input and gradient for tests of single norms, and norms whose parameters and state differ from
 * the initial ones. */
#ifndef NORM_FIXTURE_H
#define NORM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "near.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/safetensors.h"
#include "norma/norm_type.h"

enum { ROWS = 6, WIDTH = 12, HEADS = 3, N = ROWS * WIDTH };

static nm_backend *ref;
static char path[64];
static double input[N], upstream[N];
static const nm_norm_site place = {
    .name = "test", .width = WIDTH, .groups = HEADS, .plan = {.warmup_updates = 2}};

static int open_all(void **unused)
{
    (void)unused;
    nm_error err;
    snprintf(path, sizeof path, "/tmp/norma-norm-%ld", (long)getpid());
    for (int i = 0; i < N; i++) {
        nm_random_words words = nm_random4(11, NM_RANDOM_TEST, 0, 0, (uint64_t)i);
        input[i] = 0.2 + nm_random_normal(words.w[0], words.w[1]);
        upstream[i] = nm_random_normal(words.w[2], words.w[3]);
    }
    return nm_backend_create(&ref, &(nm_backend_options){.name = "ref", .dtype = NM_F64, .threads = 1},
                             &err) != NM_OK;
}

static int close_all(void **unused)
{
    (void)unused;
    unlink(path);
    nm_backend_free(ref);
    return 0;
}

static nm_norm *create(const char *type, const char *settings)
{
    nm_norm *norm;
    nm_error err = {0};
    nm_status status = nm_norm_create(&norm, ref, type, settings, &place, &err);
    if (status != NM_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, NM_OK);
    return norm;
}

/* The defaults, except for Partial RMSNorm: a sixteenth of 12 features would be a single one, and where it is
 * near 0, finite differences are inaccurate. */
static const char *settings_of(const nm_norm_type *type)
{
    return strcmp(type->name, "prms") ? NULL : "fraction=0.5";
}

/* Parameters and state that differ from the initial values. */
static __attribute__((unused)) nm_norm *create_trained(const nm_norm_type *type)
{
    nm_norm *norm = create(type->name, settings_of(type));
    nm_error err;
    double y[N], dx[N];
    for (int p = 0; p < norm->shape.n_params; p++)
        for (int i = 0; i < norm->shape.params[p].length; i++)
            ((double *)norm->params[p])[i] += 0.1 * (i + 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y, &err), NM_OK);
        assert_int_equal(nm_norm_backward(norm, upstream, dx, &err), NM_OK);
    }
    return norm;
}

static __attribute__((unused)) void for_each_type(void (*check)(const nm_norm_type *type))
{
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        check(*type);
}

static __attribute__((unused)) void assert_same_state(const nm_norm *a, const nm_norm *b, double tolerance)
{
    for (int i = 0; i < a->shape.n_state; i++)
        for (int k = 0; k < a->shape.state[i].length; k++)
            assert_near(((double *)a->state[i])[k], ((double *)b->state[i])[k], tolerance);
    assert_memory_equal(a->counters, b->counters, sizeof a->counters);
}

#endif
