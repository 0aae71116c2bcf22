# torch as a target of ours, shardway::torch, made of its folders alone: torch's own CMake package asks for the
# CUDA toolkit where torch has CUDA, and we need nothing of it. The build uses this file, and so does
# find_package(shardway), where it is installed beside the package.

# Sets SHARDWAY_TORCH_VERSION to that of the torch in `folder`, which holds include/ and lib/; empty: there is none.
macro(shardway_read_torch_version folder)
  set(SHARDWAY_TORCH_VERSION "")
  if(EXISTS "${folder}/include/torch/headeronly/version.h")
    file(STRINGS "${folder}/include/torch/headeronly/version.h" shardway_torch_lines
      REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX REPLACE "[^;]*TORCH_VERSION_[A-Z]+ ([0-9]+)" "\\1" shardway_torch_lines "${shardway_torch_lines}")
    list(JOIN shardway_torch_lines "." SHARDWAY_TORCH_VERSION)
  endif()
endmacro()

# Makes shardway::torch of that folder. A binary that links it serves torch with CUDA and without.
function(shardway_import_torch folder)
  if(TARGET shardway::torch)
    return()
  endif()
  add_library(shardway::torch INTERFACE IMPORTED)
  foreach(name c10 torch_cpu torch)
    list(APPEND libraries "${folder}/lib/lib${name}.so")
  endforeach()
  set_target_properties(shardway::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"
    # torch with CUDA needs libraries that only its own loader finds.
    INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined"
    INTERFACE_LINK_LIBRARIES "${libraries}")
endfunction()
