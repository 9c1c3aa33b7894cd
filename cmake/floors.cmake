# One static library and one test program a floor; the floors and their order stand in ARCHITECTURE.md.

# quire_floor(NAME LIBS …): src/NAME/*.cc become the library NAME, src/NAME/*_test.cc the program NAME_test.
function(quire_floor name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc ${CMAKE_SOURCE_DIR}/src/${name}/arch/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(${name} ${scope} ${ARG_LIBS})
  if(tests)
    add_executable(${name}_test ${tests})
    target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name}_test PRIVATE ${name} GTest::gtest GTest::gtest_main)
    set_property(GLOBAL APPEND PROPERTY QUIRE_TEST_PROGRAMS ${name}_test)
  endif()
endfunction()

# quire_program(NAME FLOOR LIBS …): the floor FLOOR, and its main.cc as the executable NAME.
function(quire_program name floor)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  set(main ${CMAKE_SOURCE_DIR}/src/${floor}/main.cc)
  if(NOT EXISTS ${main})
    return()
  endif()
  quire_floor(${floor} LIBS ${ARG_LIBS})
  target_compile_definitions(${floor} PRIVATE QUIRE_VERSION="${PROJECT_VERSION}")
  add_executable(${name} ${main})
  target_link_libraries(${name} PRIVATE ${floor})
endfunction()

# Each src/kernels/isa_X.cc is compiled for its own instruction set, and so are its ceilings; only these files are.
function(quire_kernel_isas)
  set(kernels ${CMAKE_SOURCE_DIR}/src/kernels)
  # Every body over words that are plain arrays: minutes of compilation with sanitizers, and no memory of its own.
  set_source_files_properties(${kernels}/emulated_tables_test.cc PROPERTIES COMPILE_OPTIONS "-O1;-fno-sanitize=all")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # With all checks of undefined behaviour they take many minutes to compile; isa_scalar.cc has the same bodies and them.
    set(checks -fno-sanitize=undefined)
    set_source_files_properties(${kernels}/isa_avx2.cc ${kernels}/ceilings_avx2.cc PROPERTIES COMPILE_OPTIONS
      "-mavx2;-mfma;-mf16c;-mbmi2;${checks}")
    set(avx512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512 ${checks})
    set_source_files_properties(${kernels}/ceilings_avx512.cc PROPERTIES COMPILE_OPTIONS "${avx512}")
    # Both its tables: compilers use tiles only where the code says so.
    set_source_files_properties(${kernels}/isa_avx512.cc PROPERTIES COMPILE_OPTIONS "${avx512};-mamx-tile;-mamx-int8")
    set_source_files_properties(${kernels}/ceilings_amx.cc PROPERTIES COMPILE_OPTIONS "-mamx-tile;-mamx-int8")
  endif()
endfunction()
