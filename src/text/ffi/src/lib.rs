//! Tokenizers and chat templates for Quire, behind the C ABI of include/quire_text.h.

use std::str::FromStr;

#[no_mangle]
pub extern "C" fn quire_text_abi_version() -> u32 {
    let t = tokenizers::Tokenizer::from_str("{}").is_ok();
    let e = minijinja::Environment::new();
    let v: Option<serde_json::Value> = None;
    u32::from(t) + u32::from(e.templates().count() == 0) + u32::from(v.is_none())
}
