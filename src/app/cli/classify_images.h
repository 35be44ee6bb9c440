/* norma classify with a model of images. */
#pragma once

#include "cli/cli.h"

typedef struct nm_classify_images_config {
    const char *output;
    bool probabilities, evaluate, json;
    int64_t bootstrap, seed;
} nm_classify_images_config;

/* Whether the path is a model of the task image. Errors as nm_loaded_model_options. */
nm_status nm_find_image_model(const char *path, bool *found, nm_error *err);
/* Returns the exit code. */
int nm_classify_images(const nm_cli *cli, const nm_classify_images_config *config, int argc, char **argv);
