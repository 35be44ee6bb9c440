/* instructions.inc for the emulator */
#include "instructions.h"

#include "backend/device/functions.inc"

#include "instructions.inc"
