# The component mpi. Two MPIs share no binary interface, so every program compiles it with its own.

# Makes MPI::MPI_CXX if there is an MPI. All folders of the project see it, as those that link the component have to.
macro(shardway_find_mpi)
  if(NOT TARGET MPI::MPI_CXX)
    set(MPI_CXX_SKIP_MPICXX TRUE)
    find_package(MPI QUIET COMPONENTS CXX)
    if(TARGET MPI::MPI_CXX)
      set_target_properties(MPI::MPI_CXX PROPERTIES IMPORTED_GLOBAL TRUE)
    endif()
  endif()
endmacro()

# Makes shardway::mpi of the sources in this folder.
function(shardway_add_mpi sources headers)
  if(TARGET shardway::mpi)
    return()
  endif()
  add_library(shardway_mpi OBJECT ${sources}/mpi_engine.cpp)
  target_compile_features(shardway_mpi PUBLIC cxx_std_20)
  set_target_properties(shardway_mpi PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(shardway_mpi PUBLIC ${headers})
  target_link_libraries(shardway_mpi PUBLIC MPI::MPI_CXX)
  add_library(shardway::mpi ALIAS shardway_mpi)
endfunction()
