# SPDX-License-Identifier: Apache-2.0
# Options, language level and the packages everything is built from.

option(BATON_BUILD_TESTS "Build the tests" ON)
set(BATON_SANITIZE "" CACHE STRING "Comma-separated sanitizers: address,undefined or thread")
option(BATON_UNITY "Compile files of a target together: builds of all take half the time" ON)
option(BATON_WERROR "Turn compiler warnings into errors" ON)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(BATON_CCACHE ccache)
if(BATON_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these ccache takes no file that uses precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${BATON_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
# The hand-off by RDMA.
set(BATON_UCX "auto" CACHE STRING "Build the ucx transport: auto (where UCX is installed), on or off")
if(BATON_UCX STREQUAL "on")
  pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx>=1.13)
elseif(BATON_UCX STREQUAL "auto")
  pkg_check_modules(UCX IMPORTED_TARGET ucx>=1.13)
endif()
