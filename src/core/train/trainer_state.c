/* Messages of a trainer, and what others read from it. */
#include <stdarg.h>
#include <xxhash.h>

#include "base/c_locale.h"
#include "base/utf8_cut.h"
#include "train/trainer_private.h"

void nm_trainer_message(nm_trainer *trainer, const char *format, ...)
{
    char text[1024];
    va_list args;
    locale_t before = nm_c_locale_enter();
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    nm_utf8_trim(text);
    va_end(args);
    nm_c_locale_leave(before);
    if (trainer->comm->size > 1)
        nm_format_append(&trainer->messages, "%s\n", text);
    if (trainer->callbacks.message)
        trainer->callbacks.message(trainer->callbacks.user, text);
}

double nm_trainer_time_fraction(const nm_trainer *trainer)
{
    return trainer->config->seconds > 0 ? trainer->state.seconds / trainer->config->seconds : 0;
}

const nm_backend *nm_trainer_backend(const nm_trainer *trainer)
{
    return trainer->backend;
}

const nm_task *nm_trainer_task(const nm_trainer *trainer)
{
    return &trainer->task;
}

nm_model *nm_trainer_model(const nm_trainer *trainer)
{
    return trainer->model;
}

const nm_train_state *nm_trainer_state(const nm_trainer *trainer)
{
    return &trainer->state;
}

size_t nm_trainer_peak_bytes(const nm_trainer *trainer)
{
    return trainer->peak_bytes;
}

size_t nm_trainer_parameters(const nm_trainer *trainer)
{
    return nm_params_learned(&trainer->model->params);
}

uint64_t nm_trainer_weights_hash(const nm_trainer *trainer)
{
    NM_AUTO(nm_host_copies_release) nm_host_copies copies = {0};
    size_t bytes = nm_params_bytes(&trainer->model->params);
    const void *host = nm_host_copies_add(&copies, trainer->backend, trainer->model->params.values, bytes);
    return XXH3_64bits(host, bytes);
}

nm_profile nm_trainer_profile(const nm_trainer *trainer)
{
    nm_profile profile = {.updates = trainer->profile.updates,
                          .tokens = trainer->profile.tokens,
                          .seconds = trainer->profile.seconds};
    profile.n_kernels = nm_backend_times(trainer->backend, profile.kernels);
    return profile;
}
