//! The C border. Every export runs in `guarded`: a panic becomes an error value, and nothing unwinds into C++.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use crate::error::{Result, TextError};
use crate::template::Template;
use crate::token_table::TokenTable;
use crate::tokenizer::Tokenizer;
use crate::{tokenizer_fields, tokenizer_json};

pub const ABI_VERSION: u32 = 1;

/// Borrowed bytes; `data` may be null when `size` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Span {
    pub data: *const u8,
    pub size: usize,
}

/// Bytes that this library allocated; given back by `quire_text_buffer_free`.
#[repr(C)]
pub struct Buffer {
    pub data: *mut u8,
    pub size: usize,
}

#[repr(C)]
pub struct Ids {
    pub data: *mut u32,
    pub size: usize,
}

#[repr(C)]
pub struct ErrorOut {
    pub code: i32,
    pub field: Buffer,
    pub message: Buffer,
}

#[repr(C)]
pub struct FieldsIn {
    pub model: Span,
    pub pre: Span,
    pub tokens: *const Span,
    pub token_count: usize,
    pub merges: *const Span,
    pub merge_count: usize,
    pub scores: *const f32,
    pub score_count: usize,
    pub types: *const i32,
    pub type_count: usize,
    pub bos: i64,
    pub eos: i64,
    pub eot: i64,
    pub unknown: i64,
    pub separator: i64,
    pub padding: i64,
    pub add_bos: i32,
    pub add_eos: i32,
    pub add_space_prefix: i32,
}

#[repr(C)]
pub struct TableOut {
    pub count: usize,
    pub piece_bytes: *const u8,
    pub piece_offsets: *const u32,
    pub bytes: *const u8,
    pub byte_offsets: *const u32,
    pub kinds: *const u8,
    pub name: Span,
    pub prefix: *const u32,
    pub prefix_size: usize,
    pub suffix: *const u32,
    pub suffix_size: usize,
    pub ends: *const u32,
    pub ends_size: usize,
    pub bos: i64,
    pub eos: i64,
    pub strips_leading_blank: i32,
}

unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 || data.is_null() {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

impl Span {
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data, self.size)
    }

    unsafe fn text<'a>(self, field: &str) -> Result<&'a str> {
        let bytes = self.bytes();
        std::str::from_utf8(bytes).map_err(|error| {
            TextError::invalid(
                field,
                format!("{field} is not UTF-8 at byte {} of {}", error.valid_up_to(), bytes.len()),
            )
        })
    }

    fn of(text: &str) -> Self {
        Self { data: text.as_ptr(), size: text.len() }
    }
}

fn leak<T>(values: Vec<T>) -> (*mut T, usize) {
    let values = Box::leak(values.into_boxed_slice());
    (values.as_mut_ptr(), values.len())
}

unsafe fn reclaim<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)));
    }
}

fn buffer(text: String) -> Buffer {
    let (data, size) = leak(text.into_bytes());
    Buffer { data, size }
}

/// Runs `body`; on a fault or panic fills `error` and returns None.
fn guarded<T>(error: *mut ErrorOut, body: impl FnOnce() -> Result<T>) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(fault)) => fault,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            // A payload whose own drop panics must not unwind from here either.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
            TextError::internal(format!("the text library failed on this input: {text}"))
        }
    };
    if !error.is_null() {
        let filled = ErrorOut { code: fault.code as i32, field: buffer(fault.field), message: buffer(fault.message) };
        unsafe { error.write(filled) };
    }
    None
}

fn boxed<T>(value: Option<T>) -> *mut T {
    value.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

fn optional_id(field: &str, id: i64) -> Result<Option<u32>> {
    match id {
        -1 => Ok(None),
        _ => u32::try_from(id).map(Some).map_err(|_| TextError::corrupt(field, format!("{field} is {id}"))),
    }
}

fn optional_switch(value: i32) -> Option<bool> {
    (value >= 0).then_some(value != 0)
}

#[no_mangle]
pub extern "C" fn quire_text_abi_version() -> u32 {
    ABI_VERSION
}

/// # Safety
/// `buffer` came from this library and was not freed.
#[no_mangle]
pub unsafe extern "C" fn quire_text_buffer_free(buffer: Buffer) {
    reclaim(buffer.data, buffer.size);
}

/// # Safety
/// `ids` came from this library and was not freed.
#[no_mangle]
pub unsafe extern "C" fn quire_text_ids_free(ids: Ids) {
    reclaim(ids.data, ids.size);
}

/// # Safety
/// All pointers of `fields` are valid for their counts; `error` is valid or null.
#[no_mangle]
pub unsafe extern "C" fn quire_text_tokenizer_from_fields(
    fields: *const FieldsIn,
    error: *mut ErrorOut,
) -> *mut Tokenizer {
    boxed(guarded(error, || {
        let input = &*fields;
        let spans = |data, size| slice::<Span>(data, size).iter().map(|span| span.bytes()).collect::<Vec<_>>();
        tokenizer_fields::build(&tokenizer_fields::Fields {
            model: input.model.text("tokenizer.ggml.model")?,
            pre: input.pre.text("tokenizer.ggml.pre")?,
            tokens: spans(input.tokens, input.token_count),
            merges: spans(input.merges, input.merge_count),
            scores: slice(input.scores, input.score_count),
            types: slice(input.types, input.type_count),
            bos: optional_id("tokenizer.ggml.bos_token_id", input.bos)?,
            eos: optional_id("tokenizer.ggml.eos_token_id", input.eos)?,
            eot: optional_id("tokenizer.ggml.eot_token_id", input.eot)?,
            unknown: optional_id("tokenizer.ggml.unknown_token_id", input.unknown)?,
            separator: optional_id("tokenizer.ggml.seperator_token_id", input.separator)?,
            padding: optional_id("tokenizer.ggml.padding_token_id", input.padding)?,
            add_bos: optional_switch(input.add_bos),
            add_eos: optional_switch(input.add_eos),
            add_space_prefix: optional_switch(input.add_space_prefix),
        })
    }))
}

/// # Safety
/// Spans are valid; `error` is valid or null.
#[no_mangle]
pub unsafe extern "C" fn quire_text_tokenizer_from_json(
    json: Span,
    config: Span,
    error: *mut ErrorOut,
) -> *mut Tokenizer {
    boxed(guarded(error, || tokenizer_json::build(json.text("tokenizer.json")?, config.text("tokenizer_config.json")?)))
}

/// # Safety
/// `tokenizer` came from this library, was not freed and is not in use.
#[no_mangle]
pub unsafe extern "C" fn quire_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(tokenizer));
            Ok(())
        });
    }
}

/// # Safety
/// Both pointers are valid. What `out` points to lives as long as the tokenizer.
#[no_mangle]
pub unsafe extern "C" fn quire_text_tokenizer_table(tokenizer: *const Tokenizer, out: *mut TableOut) {
    let tokenizer = &*tokenizer;
    let table: &TokenTable = &tokenizer.table;
    out.write(TableOut {
        count: table.len(),
        piece_bytes: table.pieces.bytes.as_ptr(),
        piece_offsets: table.pieces.offsets.as_ptr(),
        bytes: table.bytes.bytes.as_ptr(),
        byte_offsets: table.bytes.offsets.as_ptr(),
        kinds: table.kinds.as_ptr().cast(),
        name: Span::of(&tokenizer.name),
        prefix: tokenizer.prefix.as_ptr(),
        prefix_size: tokenizer.prefix.len(),
        suffix: tokenizer.suffix.as_ptr(),
        suffix_size: tokenizer.suffix.len(),
        ends: tokenizer.ends.as_ptr(),
        ends_size: tokenizer.ends.len(),
        bos: tokenizer.bos.map_or(-1, i64::from),
        eos: tokenizer.eos.map_or(-1, i64::from),
        strips_leading_blank: i32::from(tokenizer.strips_leading_blank),
    });
}

/// # Safety
/// Pointers are valid; `ids` is written on success only.
#[no_mangle]
pub unsafe extern "C" fn quire_text_encode(
    tokenizer: *const Tokenizer,
    text: Span,
    parse_special: i32,
    ids: *mut Ids,
    error: *mut ErrorOut,
) -> i32 {
    let encoded = guarded(error, || (*tokenizer).encode(text.text("text")?, parse_special != 0));
    let Some(encoded) = encoded else { return -1 };
    let (data, size) = leak(encoded);
    ids.write(Ids { data, size });
    0
}

/// # Safety
/// `source` is valid; `error` is valid or null.
#[no_mangle]
pub unsafe extern "C" fn quire_text_template_new(source: Span, error: *mut ErrorOut) -> *mut Template {
    boxed(guarded(error, || Template::compile(source.text("template")?)))
}

/// # Safety
/// `template` came from this library, was not freed and is not in use.
#[no_mangle]
pub unsafe extern "C" fn quire_text_template_free(template: *mut Template) {
    if !template.is_null() {
        guarded(std::ptr::null_mut(), || {
            drop(Box::from_raw(template));
            Ok(())
        });
    }
}

/// # Safety
/// Pointers are valid; `out` is written on success only.
#[no_mangle]
pub unsafe extern "C" fn quire_text_template_render(
    template: *const Template,
    context: Span,
    now: Span,
    out: *mut Buffer,
    error: *mut ErrorOut,
) -> i32 {
    let rendered = guarded(error, || (*template).render(context.text("context")?, now.text("now")?));
    let Some(rendered) = rendered else { return -1 };
    out.write(buffer(rendered));
    0
}

/// For the tests of the border: fails as a broken library would.
///
/// # Safety
/// `error` is valid or null.
#[no_mangle]
pub unsafe extern "C" fn quire_text_panic_for_test(error: *mut ErrorOut) -> i32 {
    let empty: Vec<i32> = Vec::new();
    match guarded(error, || Ok(empty[std::hint::black_box(3)])) {
        Some(_) => 0,
        None => -1,
    }
}
