# What `cmake --install` and CPack put where, and what find_package(lockstep) finds afterwards
# (docs/install.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(lockstep_cmake "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")

install(TARGETS lockstep)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" TYPE DOC)
# Where the program looks (engine/story.h): a place relative to its own, so that both can be moved.
install(FILES
  "${PROJECT_SOURCE_DIR}/engine/story/story-f32.gguf"
  "${PROJECT_SOURCE_DIR}/engine/story/story-q8_0.gguf"
  DESTINATION share/lockstep)
install(FILES
  "${PROJECT_SOURCE_DIR}/caches/examples/contiguous.c"
  "${PROJECT_SOURCE_DIR}/caches/examples/trusting.c"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")
# A header directly in a top folder is public. Below one folder of their own, so that a plug-in that
# is written against the tree compiles against the package: #include "caches/plugin.h".
foreach(folder IN ITEMS caches engine oracle properties)
  install(DIRECTORY "${folder}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep"
    FILES_MATCHING REGEX "/${folder}/[a-z_]+\\.h$"
    REGEX "/${folder}/[a-z_]+$" EXCLUDE
    REGEX "/(test_[a-z_]+|failing_new)\\.h$" EXCLUDE)
endforeach()

# lockstep::plugin for a cache in C or C++, lockstep::properties for tests in C++, with all that it
# links.
add_library(lockstep_plugin INTERFACE)
target_include_directories(lockstep_plugin INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lockstep>")
set(exported options plugin caches device_kernels digest_lines engine engine_scripts gguf kernels
  oracle oracle_caches oracle_driver properties sampling story threads tokenizer)
if(LOCKSTEP_CUDA_FOUND)
  list(APPEND exported cuda_options)
endif()
foreach(name IN LISTS exported)
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS lockstep_${name} EXPORT lockstep ARCHIVE)
endforeach()
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake
  DESTINATION "${lockstep_cmake}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/ci/package/lockstepConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" INSTALL_DESTINATION "${lockstep_cmake}"
  PATH_VARS CMAKE_INSTALL_BINDIR)
# Until 1.0 a plug-in written for one minor version is not promised to work with the next.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
  DESTINATION "${lockstep_cmake}")

# The program writes its own manual and completions, so that they say what it does.
if(NOT CMAKE_CROSSCOMPILING)
  set(written "${PROJECT_BINARY_DIR}/manual")
  add_custom_command(OUTPUT "${written}/lockstep.1" "${written}/lockstep" "${written}/lockstep.fish"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${written}"
    COMMAND lockstep manual > "${written}/lockstep.1"
    COMMAND lockstep completion bash > "${written}/lockstep"
    COMMAND lockstep completion fish > "${written}/lockstep.fish"
    DEPENDS lockstep VERBATIM)
  add_custom_target(lockstep_manual ALL DEPENDS "${written}/lockstep.1")
  install(FILES "${written}/lockstep.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${written}/lockstep"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${written}/lockstep.fish"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()

# A package is made of what is built: cpack does not build, least of all under tests that run.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_VENDOR "the lockstep developers")
set(CPACK_PACKAGE_CONTACT "the lockstep developers <lockstep@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "deterministic testing and verification for LLM KV caches")
set(CPACK_PACKAGE_FILE_NAME "lockstep_${PROJECT_VERSION}_${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
# Shared libraries as dpkg finds them; what the headers and static libraries need is asked of those
# who use them.
find_program(LOCKSTEP_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(LOCKSTEP_SHLIBDEPS)
if(LOCKSTEP_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "cmake, libfmt-dev, libpcre2-dev, libxxhash-dev, nlohmann-json3-dev")
include(CPack)
