/* The device kernels, compiled as C17 for the emulator. */

#include "backend/device/all.inc"
