# The libraries of headers that we compile with: those of the project around us, of the machine, or, in an sdist, the
# ones that it brings along in third_party/include.
function(shardway_find_headers package version target header)
  if(TARGET ${target})
    return()
  endif()
  find_package(${package} ${version} QUIET)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES IMPORTED_GLOBAL ON)
    return()
  endif()
  find_path(folder ${header} HINTS ${PROJECT_SOURCE_DIR}/third_party/include NO_CACHE)
  if(NOT folder)
    message(FATAL_ERROR "${package} ${version} is not here, whose headers shardway is compiled with: "
      "apt-get install libcli11-dev nlohmann-json3-dev (Debian, Ubuntu), dnf install cli11-devel json-devel (Fedora), or "
      "conda install -c conda-forge cli11 nlohmann_json; elsewhere, name the folder above ${header} in -DCMAKE_INCLUDE_PATH=")
  endif()
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${folder})
endfunction()

shardway_find_headers(nlohmann_json 3.10 nlohmann_json::nlohmann_json nlohmann/json.hpp)
if(SHARDWAY_PROGRAM)
  shardway_find_headers(CLI11 2.1 CLI11::CLI11 CLI/CLI.hpp)
endif()
