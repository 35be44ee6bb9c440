# Cross-build for 64-bit Arm, whose tests run under qemu-user (docs/portability.md):
#     SYSROOT=FOLDER cmake -S . -B build-arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/Aarch64Toolchain.cmake
# FOLDER: a root file system of Debian or Ubuntu for arm64 with the -dev packages of docs/dependencies.md.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NORMA_SYSROOT)
if(NOT NORMA_SYSROOT)
  set(NORMA_SYSROOT $ENV{SYSROOT})
endif()
set(NORMA_SYSROOT ${NORMA_SYSROOT} CACHE PATH "Root file system of the target")
set(CMAKE_SYSROOT ${NORMA_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${NORMA_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${NORMA_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${NORMA_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${NORMA_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${NORMA_SYSROOT})
