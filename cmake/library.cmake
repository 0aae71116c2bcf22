# libshardway.so: the rooms in one shared library.
add_library(shardway SHARED ${PROJECT_SOURCE_DIR}/src/version.cpp)
set_target_properties(shardway PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
  INSTALL_RPATH "$ORIGIN/../../torch/lib")
target_include_directories(shardway PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(shardway PUBLIC torch PRIVATE shardway_plan shardway_page shardway_shm shardway_transport shardway_ops
  shardway_backend)
