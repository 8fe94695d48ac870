# ci/compilers, ci/fuzz and ci/aarch64 join sources into one unit a library, which takes a third of
# the time. These have names of their neighbours, or are an object of their own for a reason: a
# table of kernels, which check_isa_symbols.cmake looks at and lockstep_probe_control replaces.
foreach(target IN ITEMS lockstep lockstep_properties lockstep_reports kernels_test)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endforeach()
foreach(apart IN ITEMS
    lockstep_caches:caches/simple_kv_cache.cc
    lockstep_kernels:engine/kernels/kernels_neon.cc
    lockstep_kernels:engine/kernels/kernels_scalar.cc
    lockstep_limits:reports/limits/isa_neon.cc
    lockstep_oracle:oracle/verify.cc
    lockstep_tokenizer:engine/tokenizer/vocabulary.cc)
  string(REPLACE ":" ";" apart "${apart}")
  list(GET apart 0 target)
  list(GET apart 1 source)
  if(TARGET ${target})
    set_source_files_properties("${PROJECT_SOURCE_DIR}/${source}"
      TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endforeach()
