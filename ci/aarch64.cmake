# Builds for aarch64 on another machine, with Debian's cross compiler; ci/aarch64 passes
# LOCKSTEP_SYSROOT, where ci/sysroot laid the libraries.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOCKSTEP_SYSROOT)
set(CMAKE_FIND_ROOT_PATH "${LOCKSTEP_SYSROOT}")
# Debian keeps libraries and CMake's package files in a folder of the architecture's name.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_FLAGS_INIT "-isystem ${LOCKSTEP_SYSROOT}/usr/include/aarch64-linux-gnu")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${LOCKSTEP_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${LOCKSTEP_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig")
