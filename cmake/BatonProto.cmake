# SPDX-License-Identifier: Apache-2.0
# C++ from .proto files. Definitions of others (google.rpc) come from the PyPI
# package googleapis-common-protos, fetched when the build is configured.

find_program(BATON_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(BATON_GOOGLEAPIS_VERSION 1.63.0)
set(BATON_GOOGLEAPIS_DIR ${CMAKE_BINARY_DIR}/third_party/googleapis CACHE PATH
    "Folder that holds google/rpc/*.proto; filled from PyPI when it is empty")

function(baton_fetch_googleapis)
  if(EXISTS ${BATON_GOOGLEAPIS_DIR}/google/rpc/error_details.proto)
    return()
  endif()
  message(STATUS "Fetching google.rpc definitions (googleapis-common-protos ${BATON_GOOGLEAPIS_VERSION})")
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/fetch_wheel_files.py
            googleapis-common-protos==${BATON_GOOGLEAPIS_VERSION} ${BATON_GOOGLEAPIS_DIR}
            google/rpc/status.proto google/rpc/code.proto google/rpc/error_details.proto
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "The google.rpc definitions could not be fetched. Check the network, or set "
      "-DBATON_GOOGLEAPIS_DIR to a folder that holds google/rpc/error_details.proto.")
  endif()
endfunction()

# Generates all messages and compiles none, for tools that read sources.
add_custom_target(baton_messages)

# baton_proto_library(<name> ROOT <import root> FILES <relative .proto> [GRPC] [DEPS <targets>])
function(baton_proto_library name)
  cmake_parse_arguments(ARG "GRPC" "ROOT" "FILES;DEPS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/gen)
  set(generated)
  foreach(file IN LISTS ARG_FILES)
    string(REGEX REPLACE "\\.proto$" "" stem ${file})
    set(outputs ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
    set(args --proto_path=${ARG_ROOT} --proto_path=${BATON_GOOGLEAPIS_DIR} --cpp_out=${out})
    if(ARG_GRPC)
      list(APPEND outputs ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
      list(APPEND args --grpc_out=${out} --plugin=protoc-gen-grpc=${BATON_GRPC_CPP_PLUGIN})
    endif()
    add_custom_command(OUTPUT ${outputs}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
      COMMAND protobuf::protoc ${args} ${ARG_ROOT}/${file}
      DEPENDS ${ARG_ROOT}/${file} VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  add_custom_target(baton_${name}_sources DEPENDS ${generated})
  add_dependencies(baton_messages baton_${name}_sources)
  add_library(baton_${name} STATIC ${generated})
  add_library(baton::${name} ALIAS baton_${name})
  set_target_properties(baton_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(baton_${name} SYSTEM PUBLIC $<BUILD_INTERFACE:${out}>)
  target_link_libraries(baton_${name} PUBLIC protobuf::libprotobuf ${ARG_DEPS})
  if(ARG_GRPC)
    target_link_libraries(baton_${name} PUBLIC gRPC::grpc++)
  endif()
  if(BATON_SANITIZE)
    target_compile_options(baton_${name} PRIVATE -fsanitize=${BATON_SANITIZE})
  endif()
endfunction()
