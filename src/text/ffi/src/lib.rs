//! Tokenizers and chat templates for Quire, behind the C ABI of include/quire_text.h.
//!
//! No panic crosses the border (abi.rs); no pointer outlives its handle; every size of the input is checked first.

mod abi;
mod added_tokens;
mod bpe;
mod byte_letters;
mod end_tokens;
mod error;
mod pretokenizers;
mod python;
mod splits;
mod template;
mod token_table;
mod tokenizer;
mod tokenizer_fields;
mod tokenizer_json;
