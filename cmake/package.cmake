# What others link, as targets here and as what find_package(shardway CONFIG) finds in a prefix of `cmake --install`, in a
# wheel and in the build tree: the rooms that need no torch as archives, and the whole as libshardway.so.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(archives)
shardway_objects(plan_objects plan)
shardway_objects(shm_objects shm)
set(page_objects $<TARGET_OBJECTS:shardway_page>)
foreach(room plan shm page)
  add_library(shardway_${room}_archive STATIC ${${room}_objects} ${PROJECT_SOURCE_DIR}/src/version.cpp)
  set_target_properties(shardway_${room}_archive PROPERTIES
    OUTPUT_NAME shardway_${room} EXPORT_NAME ${room} ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_include_directories(shardway_${room}_archive PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_compile_features(shardway_${room}_archive PUBLIC cxx_std_20)
  add_library(shardway::${room} ALIAS shardway_${room}_archive)
  list(APPEND archives shardway_${room}_archive)
endforeach()
target_link_libraries(shardway_page_archive PUBLIC shardway_plan_archive)
target_link_libraries(shardway_shm_archive PUBLIC shardway_plan_archive)
add_custom_target(shardway_archives DEPENDS ${archives})

if(NOT SHARDWAY_INSTALL)
  return()
endif()

set(package_folder ${PROJECT_BINARY_DIR}/lib/cmake/shardway)
set(sources_of_mpi ${CMAKE_CURRENT_LIST_DIR}/shardwayMpi.cmake ${PROJECT_SOURCE_DIR}/src/mpi/mpi_engine.cpp)
file(COPY ${CMAKE_CURRENT_LIST_DIR}/shardwayTorchTarget.cmake DESTINATION ${package_folder})
foreach(source ${sources_of_mpi})
  get_filename_component(name ${source} NAME)
  file(CREATE_LINK ${source} ${package_folder}/${name} SYMBOLIC)
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/shardwayConfig.cmake.in ${package_folder}/shardwayConfig.cmake
  INSTALL_DESTINATION lib/cmake/shardway)
# Before 1.0 a minor version may break what was there.
write_basic_package_version_file(${package_folder}/shardwayConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# Lays the C++ side down below `root` as one component of the install. `ARGN` goes to each rule.
function(shardway_install component root)
  set(rule COMPONENT ${component} ${ARGN})
  set(libraries ${root}${CMAKE_INSTALL_LIBDIR})
  set(headers ${root}${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS ${archives} EXPORT ${component}_rooms
    ARCHIVE DESTINATION ${libraries} ${rule} INCLUDES DESTINATION ${headers})
  install(EXPORT ${component}_rooms FILE shardwayRooms.cmake NAMESPACE shardway::
    DESTINATION ${libraries}/cmake/shardway ${rule})
  if(SHARDWAY_TORCH)
    install(TARGETS shardway EXPORT ${component}_torch
      LIBRARY DESTINATION ${libraries} ${rule} INCLUDES DESTINATION ${headers})
    install(EXPORT ${component}_torch FILE shardwayTorch.cmake NAMESPACE shardway::
      DESTINATION ${libraries}/cmake/shardway ${rule})
  endif()
  install(FILES ${package_folder}/shardwayConfig.cmake ${package_folder}/shardwayConfigVersion.cmake
    ${package_folder}/shardwayTorchTarget.cmake ${sources_of_mpi} DESTINATION ${libraries}/cmake/shardway ${rule})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/shardway DESTINATION ${headers} ${rule})
endfunction()

shardway_install(prefix "")
if(SHARDWAY_PROGRAM)
  install(TARGETS shardway_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT prefix)
endif()
export(EXPORT prefix_rooms FILE ${package_folder}/shardwayRooms.cmake NAMESPACE shardway::)
if(SHARDWAY_TORCH)
  export(EXPORT prefix_torch FILE ${package_folder}/shardwayTorch.cmake NAMESPACE shardway::)
endif()
