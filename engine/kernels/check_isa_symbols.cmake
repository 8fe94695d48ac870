# cmake -DNM=nm -DOBJECTS="a.o;b.o" -P check_isa_symbols.cmake
#
# An object compiled for an instruction set may define its table and nothing else that a linker
# sees: an inline function with external linkage in it could replace the baseline's copy, and the
# program would die on a machine without that instruction set. Objects for another processor are
# empty.
list(FILTER OBJECTS INCLUDE REGEX "kernels_(avx2|avx512|neon)")
set(found 0)
if(NOT OBJECTS)
  message(FATAL_ERROR "no instruction-set objects among those given")
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" --demangle --defined-only --extern-only "${object}"
                  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  set(tables "${symbols}")
  list(FILTER tables INCLUDE REGEX " [BDR] lockstep::internal::k[A-Za-z0-9]+Kernels$")
  list(LENGTH tables table_count)
  list(LENGTH symbols symbol_count)
  if(symbol_count GREATER 1 OR NOT table_count EQUAL symbol_count)
    message(FATAL_ERROR "${object} must define one table and nothing else, defines: ${symbols}")
  endif()
  math(EXPR found "${found} + ${table_count}")
endforeach()
if(found LESS 2)
  message(FATAL_ERROR "of the instruction sets' objects ${found} define a table: ${OBJECTS}")
endif()
