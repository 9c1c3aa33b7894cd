# src/text/ffi is one Rust static library (tokenizers, templates, grammars); cargo decides what is stale.
find_program(CARGO cargo REQUIRED)
set(text_ffi_lib ${QUIRE_CARGO_DIR}/release/libquire_text.a)
file(GLOB_RECURSE text_ffi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/text/ffi/src/*.rs)
add_custom_command(
  OUTPUT ${text_ffi_lib}
  COMMAND ${CARGO} build --release --locked --lib --quiet --target-dir ${QUIRE_CARGO_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch_nocreate ${text_ffi_lib}
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/src/text/ffi
  DEPENDS ${text_ffi_sources} ${CMAKE_SOURCE_DIR}/src/text/ffi/Cargo.toml ${CMAKE_SOURCE_DIR}/src/text/ffi/Cargo.lock
  COMMENT "Building the text library (Rust)"
  USES_TERMINAL)
add_custom_target(text_ffi_build DEPENDS ${text_ffi_lib})
add_library(text_ffi INTERFACE)
add_dependencies(text_ffi text_ffi_build)
target_include_directories(text_ffi INTERFACE ${CMAKE_SOURCE_DIR}/src/text/ffi/include)
target_link_libraries(text_ffi INTERFACE ${text_ffi_lib} Threads::Threads ${CMAKE_DL_LIBS} m)
