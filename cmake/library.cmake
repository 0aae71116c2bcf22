# libshardway.so: the rooms in one shared library. Only the public API leaves it (exports.map): what else it holds,
# of torch's templates and of a C++ library that is linked statically, meets nobody's.
function(shardway_exports target map)
  target_link_options(${target} PRIVATE LINKER:--exclude-libs,ALL LINKER:--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
endfunction()

set(rooms shardway_plan shardway_page shardway_shm shardway_torch_rooms)
add_library(shardway SHARED ${PROJECT_SOURCE_DIR}/src/version.cpp)
add_library(shardway::shardway ALIAS shardway)
# A wheel lies beside torch's; elsewhere torch is where it was.
set(torch_libraries "$ORIGIN/../../torch/lib")
if(NOT SKBUILD)
  list(APPEND torch_libraries ${torch_folder}/lib)
endif()
set_target_properties(shardway PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
  INSTALL_RPATH "${torch_libraries}")
target_include_directories(shardway PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(shardway PUBLIC cxx_std_20)
target_link_libraries(shardway PUBLIC shardway::torch PRIVATE ${rooms})
shardway_exports(shardway ${CMAKE_CURRENT_LIST_DIR}/exports.map)

# The rooms without the wall: for programs of ours that look inside.
add_library(shardway_rooms INTERFACE)
target_link_libraries(shardway_rooms INTERFACE ${rooms} shardway::torch)
target_sources(shardway_rooms INTERFACE ${PROJECT_SOURCE_DIR}/src/version.cpp $<TARGET_OBJECTS:shardway_page>)
