# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: binaries, the client library with its package files, its
# header, and the protos for clients in other languages.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(BATON_INSTALL_PROTO_DIR ${CMAKE_INSTALL_DATADIR}/baton/proto)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/baton)

# The client and what it is linked with; users name baton::client alone.
set_target_properties(baton_client PROPERTIES EXPORT_NAME client)
install(TARGETS baton_client baton_base baton_proto_inference baton_proto_types baton_google_rpc
  EXPORT batonTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT batonTargets NAMESPACE baton:: DESTINATION ${package_dir} COMPONENT client)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/batonConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/batonConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS BATON_INSTALL_PROTO_DIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/batonConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/batonConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/batonConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT client)

install(FILES ${PROJECT_SOURCE_DIR}/client/baton/client.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/baton COMPONENT client)
# The public API alone: the other protos are between our own processes.
install(FILES ${PROJECT_SOURCE_DIR}/proto/baton/v1/types.proto
              ${PROJECT_SOURCE_DIR}/proto/baton/v1/inference.proto
  DESTINATION ${BATON_INSTALL_PROTO_DIR}/baton/v1 COMPONENT client)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/example ${PROJECT_SOURCE_DIR}/client/python
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT client)

# Binaries of folders that come later in the build exist when this runs.
function(baton_install_binaries)
  foreach(binary IN ITEMS baton baton-router baton-prefill-worker baton-decode-worker)
    if(TARGET ${binary})
      install(TARGETS ${binary} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT binaries)
    endif()
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL baton_install_binaries)
