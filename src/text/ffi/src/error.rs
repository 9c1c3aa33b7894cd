//! The one error type of this library; it becomes `quire_text_error` at the C border.

/// Numbers of `quire_text_code` in quire_text.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    InvalidArgument = 1,
    Unsupported = 2,
    Corrupt = 3,
    Resource = 4,
    Internal = 5,
}

/// One fault of the input. `message` is one sentence that names field, value and limit.
#[derive(Debug, Clone)]
pub struct TextError {
    pub code: Code,
    pub field: String,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, TextError>;

impl TextError {
    pub fn new(code: Code, field: &str, message: impl Into<String>) -> Self {
        Self { code, field: field.to_owned(), message: message.into() }
    }

    pub fn corrupt(field: &str, message: impl Into<String>) -> Self {
        Self::new(Code::Corrupt, field, message)
    }

    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, field, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, "", message)
    }
}

/// Text of the vocabulary in messages: quoted, escaped and never longer than a line.
pub fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 48;
    let cut = bytes.len().min(LONGEST);
    let text = String::from_utf8_lossy(&bytes[..cut]);
    let dots = if cut < bytes.len() { "…" } else { "" };
    format!("{text:?}{dots}")
}
