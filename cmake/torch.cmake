# Finds the torch to build with: the one in SHARDWAY_TORCH_DIR, else the one of the Python that builds us.
include(shardwayTorchTarget)

set(SHARDWAY_TORCH_DIR "" CACHE PATH "The torch to build with: a folder with include/ and lib/. Empty: Python's")
option(SHARDWAY_ANY_TORCH "Build with a torch that is older or newer than those we know" OFF)
set(oldest_torch 2.11)
set(newest_torch 2.15)

find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
set(torch_folder "${SHARDWAY_TORCH_DIR}")
if(NOT torch_folder)
  if(NOT Python_Interpreter_FOUND)
    message(FATAL_ERROR "there is no Python of at least 3.10, whose torch to build with: install one, name a torch with "
      "-DSHARDWAY_TORCH_DIR=, or build what needs none with cmake --preset no-torch")
  endif()
  # Asked for its place, torch is not loaded.
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(*u.find_spec('torch').submodule_search_locations)"
    OUTPUT_VARIABLE torch_folder ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT torch_folder)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no torch: ${Python_EXECUTABLE} -m pip install torch==${newest_torch}.*, "
      "or build what needs none with cmake --preset no-torch")
  endif()
endif()

shardway_read_torch_version("${torch_folder}")
if(NOT SHARDWAY_TORCH_VERSION)
  message(FATAL_ERROR "${torch_folder} holds no torch of at least ${oldest_torch} (no include/torch/headeronly/version.h): "
    "name a folder with torch's include/ and lib/ in -DSHARDWAY_TORCH_DIR=, or pip install torch==${newest_torch}.*")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" SHARDWAY_TORCH_MINOR ${SHARDWAY_TORCH_VERSION})
if((SHARDWAY_TORCH_MINOR VERSION_LESS oldest_torch OR SHARDWAY_TORCH_MINOR VERSION_GREATER newest_torch)
    AND NOT SHARDWAY_ANY_TORCH)
  message(FATAL_ERROR "torch ${SHARDWAY_TORCH_VERSION} in ${torch_folder} is none of those that shardway is built with, "
    "${oldest_torch} to ${newest_torch}: pip install torch==${newest_torch}.*, or try it with -DSHARDWAY_ANY_TORCH=ON")
endif()
if(NOT SKBUILD)
  set(SHARDWAY_TORCH_HINT ${torch_folder})
endif()
message(STATUS "torch ${SHARDWAY_TORCH_VERSION} in ${torch_folder}")
shardway_import_torch("${torch_folder}")

# A bare libtorch has no Python side.
find_library(TORCH_PYTHON torch_python PATHS ${torch_folder}/lib NO_DEFAULT_PATH NO_CACHE)
set(SHARDWAY_PYTHON OFF)
if(TORCH_PYTHON)
  set(SHARDWAY_PYTHON ON)
  if(NOT Python_Development.Module_FOUND)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no headers to compile an extension with: apt-get install python3-dev "
      "(dnf install python3-devel), or take a Python that has them with -DPython_EXECUTABLE=")
  endif()
endif()

# shardway_torch_target(TARGET tensor|c10d): compiles a target with torch's headers. One precompiled header serves all files
# that hold tensors, another those that call c10d, the dispatcher or most of ATen: see docs/decisions/0023-build.md.
function(shardway_torch_target target headers)
  target_link_libraries(${target} PUBLIC shardway::torch)
  get_property(owner GLOBAL PROPERTY shardway_${headers}_headers)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/${headers}_pch.h)
    set_property(GLOBAL PROPERTY shardway_${headers}_headers ${target})
  endif()
endfunction()
