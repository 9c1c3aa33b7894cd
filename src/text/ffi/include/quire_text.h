// The C ABI of the Rust library quire_text: tokenizers and chat templates.
//
// Strings are (pointer, size) and never NUL-terminated. Objects are opaque; several threads may use one at
// the same time, but not free it meanwhile. A function that can fail takes `error`: on failure it fills it
// and returns NULL or -1, on success it leaves it alone. No panic crosses this border. What a call returns by
// pointer is freed by the function named for it; what a table points to lives as long as its tokenizer.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_TEXT_ABI_VERSION 1u

typedef struct quire_text_span {
  const uint8_t* data;
  size_t size;
} quire_text_span;

typedef struct quire_text_buffer {
  uint8_t* data;
  size_t size;
} quire_text_buffer;

typedef struct quire_text_ids {
  uint32_t* data;
  size_t size;
} quire_text_ids;

enum quire_text_code {
  QUIRE_TEXT_INVALID_ARGUMENT = 1,
  QUIRE_TEXT_UNSUPPORTED = 2,
  QUIRE_TEXT_CORRUPT = 3,
  QUIRE_TEXT_RESOURCE = 4,
  QUIRE_TEXT_INTERNAL = 5,
};

// `field` and `message` are freed by quire_text_buffer_free.
typedef struct quire_text_error {
  int32_t code;
  quire_text_buffer field;
  quire_text_buffer message;
} quire_text_error;

// tokenizer.ggml.* of a GGUF file. Ids: -1 = absent. Switches: -1 = absent, 0, 1.
typedef struct quire_text_fields {
  quire_text_span model;
  quire_text_span pre;
  const quire_text_span* tokens;
  size_t token_count;
  const quire_text_span* merges;
  size_t merge_count;
  const float* scores;
  size_t score_count;
  const int32_t* types;
  size_t type_count;
  int64_t bos, eos, eot, unknown, separator, padding;
  int32_t add_bos, add_eos, add_space_prefix;
} quire_text_fields;

// String i of a pair (bytes, offsets) is bytes[offsets[i] .. offsets[i + 1]).
typedef struct quire_text_table {
  size_t count;
  const uint8_t* piece_bytes;
  const uint32_t* piece_offsets;  // [count + 1]
  const uint8_t* bytes;
  const uint32_t* byte_offsets;  // [count + 1]
  const uint8_t* kinds;          // [count]: 0 normal, 1 unknown, 2 control, 3 user-defined, 4 unused, 5 byte
  quire_text_span name;
  const uint32_t* prefix;  // ids before and behind a prompt
  size_t prefix_size;
  const uint32_t* suffix;
  size_t suffix_size;
  const uint32_t* ends;  // ids that end an answer
  size_t ends_size;
  int64_t bos, eos;  // -1 = none
  int32_t strips_leading_blank;
} quire_text_table;

typedef struct quire_text_tokenizer quire_text_tokenizer;
typedef struct quire_text_template quire_text_template;

uint32_t quire_text_abi_version(void);
void quire_text_buffer_free(quire_text_buffer buffer);
void quire_text_ids_free(quire_text_ids ids);

quire_text_tokenizer* quire_text_tokenizer_from_fields(const quire_text_fields* fields,
                                                       quire_text_error* error);
// `config` is tokenizer_config.json, or empty.
quire_text_tokenizer* quire_text_tokenizer_from_json(quire_text_span json, quire_text_span config,
                                                     quire_text_error* error);
void quire_text_tokenizer_free(quire_text_tokenizer* tokenizer);
void quire_text_tokenizer_table(const quire_text_tokenizer* tokenizer, quire_text_table* out);
// 0, or -1. parse_special: whether control tokens written in the text become that token.
int32_t quire_text_encode(const quire_text_tokenizer* tokenizer, quire_text_span text, int32_t parse_special,
                          quire_text_ids* ids, quire_text_error* error);

quire_text_template* quire_text_template_new(quire_text_span source, quire_text_error* error);
void quire_text_template_free(quire_text_template* chat_template);
// 0, or -1. `context` is a JSON object, `now` is YYYY-MM-DDTHH:MM:SS.
int32_t quire_text_template_render(const quire_text_template* chat_template, quire_text_span context,
                                   quire_text_span now, quire_text_buffer* out, quire_text_error* error);

// Panics inside and returns -1: shows that a panic is contained.
int32_t quire_text_panic_for_test(quire_text_error* error);

#ifdef __cplusplus
}
#endif
