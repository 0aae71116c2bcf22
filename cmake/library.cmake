# libshardway.so: the rooms in one shared library.
add_library(shardway SHARED ${PROJECT_SOURCE_DIR}/src/version.cpp)
add_library(shardway::shardway ALIAS shardway)
# A wheel lies beside torch's; elsewhere torch is where it was.
set(torch_libraries "$ORIGIN/../../torch/lib")
if(NOT SKBUILD)
  list(APPEND torch_libraries ${TORCH_INSTALL_PREFIX}/lib)
endif()
set_target_properties(shardway PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
  INSTALL_RPATH "${torch_libraries}")
target_include_directories(shardway PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(shardway PUBLIC cxx_std_20)
target_link_libraries(shardway PUBLIC torch PRIVATE shardway_plan shardway_page shardway_shm shardway_wire shardway_transport shardway_ops
  shardway_backend)
