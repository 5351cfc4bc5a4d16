# SPDX-License-Identifier: Apache-2.0
# How every target of the project is declared. Flags travel with targets.

include(CMakeParseArguments)

add_library(baton_build_flags INTERFACE)
target_include_directories(baton_build_flags INTERFACE ${PROJECT_SOURCE_DIR})
# One operation sequence per result: no contraction, no reassociation, so that
# the same row has the same bits in every kernel variant and build type.
target_compile_options(baton_build_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<BOOL:${BATON_WERROR}>:-Werror> -ffp-contract=off -fno-omit-frame-pointer -pthread)
# GCC 12 warns about its own std::string::operator+ (its bug 105651).
target_compile_options(baton_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(BATON_SANITIZE)
  target_compile_options(baton_build_flags INTERFACE -fsanitize=${BATON_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(baton_build_flags INTERFACE -fsanitize=${BATON_SANITIZE})
endif()

# Names in anonymous namespaces must be unique within a target for this. Files
# that have flags of their own stay apart.
function(baton_compile_together name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${BATON_UNITY} UNITY_BUILD_BATCH_SIZE 10)
endfunction()

# Flags of files that hold vector code. What an unrolled tile does with pointers
# would be checked at every step, which takes compilers four times as long and
# finds nothing that AddressSanitizer does not.
set(BATON_VECTOR_FLAGS -O3)
if(BATON_SANITIZE MATCHES "undefined")
  list(APPEND BATON_VECTOR_FLAGS -fno-sanitize=null,object-size,pointer-overflow)
endif()

# Most of a file's build time is the compiler's work on the headers of gRPC,
# Protobuf and Abseil, and on the code generated for messages: they are read once
# per set of flags.
set(BATON_COMMON_HEADERS
  <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <thread> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/time/time.h> <google/protobuf/message.h> <grpcpp/grpcpp.h> <nlohmann/json.hpp>)
set(BATON_MESSAGE_HEADERS <baton/v1/inference.grpc.pb.h> <baton/v1/worker.grpc.pb.h>)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled_headers.cc CONTENT "")
# baton_precompile(<target> <headers>)
function(baton_precompile name)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  # ccache would preprocess them through those that are there already, and find
  # no change.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
endfunction()
function(baton_precompiled_headers name)
  cmake_parse_arguments(ARG "" "" "HEADERS;FLAGS;DEPS" ${ARGN})
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/precompiled_headers.cc)
  target_compile_options(${name} PRIVATE -fPIC ${ARG_FLAGS})
  target_link_libraries(${name} PRIVATE baton_build_flags ${ARG_DEPS})
  baton_precompile(${name} ${ARG_HEADERS})
endfunction()
baton_precompiled_headers(baton_common_headers HEADERS ${BATON_COMMON_HEADERS})
baton_precompiled_headers(baton_message_headers
  HEADERS ${BATON_COMMON_HEADERS} ${BATON_MESSAGE_HEADERS} DEPS baton_proto_worker)
if(BATON_SANITIZE)
  set(BATON_HOT_FLAGS -O1)
  baton_precompiled_headers(baton_hot_headers HEADERS ${BATON_COMMON_HEADERS} FLAGS ${BATON_HOT_FLAGS})
endif()

# baton_library(<name> SOURCES <files> [DEPS <public>] [PRIVATE_DEPS <private>] [HOT | MESSAGES])
# declares baton_<name> with the alias baton::<name>. HOT: tests spend their time
# in it, so it is optimized where the others are not, under sanitizers. MESSAGES:
# most of its files include the generated headers of our own services.
function(baton_library name)
  cmake_parse_arguments(ARG "HOT;MESSAGES" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(baton_${name} STATIC ${ARG_SOURCES})
  add_library(baton::${name} ALIAS baton_${name})
  set_target_properties(baton_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  set(headers baton_common_headers)
  if(BATON_SANITIZE AND ARG_HOT)
    target_compile_options(baton_${name} PRIVATE ${BATON_HOT_FLAGS})
    set(headers baton_hot_headers)
  elseif(ARG_MESSAGES)
    set(headers baton_message_headers)
  endif()
  # Kernels have flags of their own and include little.
  if(NOT name MATCHES "^kernels")
    baton_compile_together(baton_${name})
    target_precompile_headers(baton_${name} REUSE_FROM ${headers})
  endif()
  target_include_directories(baton_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS}
                        PRIVATE ${ARG_PRIVATE_DEPS} $<BUILD_INTERFACE:baton_build_flags>)
endfunction()

# baton_binary(<name> SOURCES <files> DEPS <targets> [MESSAGES])
function(baton_binary name)
  cmake_parse_arguments(ARG "MESSAGES" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  baton_compile_together(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton_build_flags)
  if(ARG_MESSAGES)
    target_compile_options(${name} PRIVATE -fPIC)  # as the headers
    target_precompile_headers(${name} REUSE_FROM baton_message_headers)
  endif()
endfunction()

# baton_test(<name> SOURCES <files> DEPS <targets> [LABEL unit] [TIMEOUT 60])
# Labels: unit (a minute in all), integration, bench, gpu. Unit tests of some
# folders have a second one: "core", where threads meet (also those of emulated
# GPUs) and gRPC is not known, runs under TSan as well; "numeric", whose results
# the optimizer could change, runs in release builds even where all tests run
# under ASan. A target per label, such as unit_tests, builds its tests.
set(BATON_CORE_TESTS "tests/(kernels/cuda|common/(base|cores|engine|kv|sched|transport))(/|$)")
set(BATON_NUMERIC_TESTS "tests/(kernels|common/model|common/sampling)(/|$)")
# Under sanitizers the build type alone says how tests are optimized.
if(BATON_SANITIZE)
  set(BATON_SANITIZED 1)
else()
  set(BATON_SANITIZED 0)
  set(BATON_TEST_OPTIMIZATION -O1)
endif()
foreach(label IN ITEMS unit core numeric integration bench)
  add_custom_target(${label}_tests)
endforeach()

function(baton_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(BATON_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  baton_compile_together(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton_build_flags baton_test_main)
  target_compile_definitions(${name} PRIVATE
    BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}" BATON_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  # Most of a test's build time is the compiler's work on GoogleTest: read it
  # once (the flags must be the same for all), and optimize tests lightly.
  target_precompile_headers(${name} REUSE_FROM baton_test_main)
  target_compile_options(${name} PRIVATE ${BATON_TEST_OPTIMIZATION})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set(labels ${ARG_LABEL})
  if(ARG_LABEL STREQUAL "unit")
    if(CMAKE_CURRENT_SOURCE_DIR MATCHES ${BATON_CORE_TESTS} OR name STREQUAL "thread_pool_test")
      list(APPEND labels core)
    endif()
    if(CMAKE_CURRENT_SOURCE_DIR MATCHES ${BATON_NUMERIC_TESTS})
      list(APPEND labels numeric)
    endif()
  endif()
  foreach(label IN LISTS labels)
    add_dependencies(${label}_tests ${name})
  endforeach()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
