# Debian's cross compiler for 64-bit Arm, and qemu-user to run what it makes. Headers and archives that the tests
# need lie below `root`, where scripts/setup arm puts them; the C library is the cross compiler's.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# qemu keeps a record of every page that is mapped, touched or not: 1 GiB takes it four times as long as 256 MiB. An
# arena is as large as the machine's memory, and never larger than a file may be.
set(CMAKE_CROSSCOMPILING_EMULATOR prlimit --fsize=268435456 qemu-aarch64 -L /usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH ${CMAKE_CURRENT_LIST_DIR}/../build/arm/root /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
