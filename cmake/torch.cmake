# Finds the torch of the Python that builds us, and its Python library.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path); print(torch.__version__)"
  OUTPUT_VARIABLE torch_answer RESULT_VARIABLE torch_status OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_status EQUAL 0)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no torch: run make demo, or configure with --preset no-torch")
endif()
string(REPLACE "\n" ";" torch_answer "${torch_answer}")
list(GET torch_answer 0 torch_prefix)
list(GET torch_answer 1 SHARDWAY_TORCH_VERSION)
string(REGEX MATCH "^[0-9.]+" SHARDWAY_TORCH_RELEASE ${SHARDWAY_TORCH_VERSION})
if(NOT SKBUILD)
  set(SHARDWAY_TORCH_HINT ${torch_prefix})
endif()
find_package(Torch CONFIG REQUIRED PATHS ${torch_prefix} NO_DEFAULT_PATH)
find_library(TORCH_PYTHON torch_python PATHS ${TORCH_INSTALL_PREFIX}/lib NO_DEFAULT_PATH REQUIRED)

# One precompiled header serves every file that includes torch: it halves their compile time.
function(shardway_torch_target target)
  target_link_libraries(${target} PUBLIC torch)
  target_include_directories(${target} SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
  if(target STREQUAL "shardway_transport")
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)
  else()
    target_precompile_headers(${target} REUSE_FROM shardway_transport)
  endif()
endfunction()
