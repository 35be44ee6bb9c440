/* instructions.inc for the emulator */
#include "instructions.h"

#include "backend/device/kernels/functions.inc"

#include "instructions.inc"
