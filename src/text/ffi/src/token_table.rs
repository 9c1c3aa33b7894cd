//! What each token id stands for: its piece, its raw bytes and its kind, in flat arrays that C++ reads.

use crate::error::{Result, TextError};

/// Numbers are those of the C++ `TokenKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Normal = 0,
    Unknown = 1,
    Control = 2,
    UserDefined = 3,
    Unused = 4,
    Byte = 5,
}

impl Kind {
    /// Found in text only when special tokens are parsed, and yields no text itself.
    pub fn is_special(self) -> bool {
        matches!(self, Kind::Control | Kind::Unknown)
    }
}

pub const MAX_TOKENS: usize = 1 << 22;
pub const MAX_TOKEN_BYTES: usize = 1 << 16;
pub const MAX_VOCABULARY_BYTES: usize = 1 << 28;

/// Many byte strings end to end. `offsets` has one entry more than there are strings.
#[derive(Default)]
pub struct Strings {
    pub bytes: Vec<u8>,
    pub offsets: Vec<u32>,
}

impl Strings {
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        Self { bytes: Vec::with_capacity(bytes), offsets }
    }

    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.offsets.push(self.bytes.len() as u32);
    }

    pub fn get(&self, index: u32) -> &[u8] {
        let i = index as usize;
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
}

/// Immutable once built. Invariant: `pieces`, `bytes` and `kinds` have the same length.
#[derive(Default)]
pub struct TokenTable {
    pub pieces: Strings,
    pub bytes: Strings,
    pub kinds: Vec<Kind>,
}

impl TokenTable {
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            pieces: Strings::with_capacity(count, bytes),
            bytes: Strings::with_capacity(count, bytes),
            kinds: Vec::with_capacity(count),
        }
    }

    pub fn push(&mut self, piece: &[u8], bytes: &[u8], kind: Kind) {
        self.pieces.push(piece);
        self.bytes.push(bytes);
        self.kinds.push(kind);
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    pub fn kind(&self, id: u32) -> Kind {
        self.kinds[id as usize]
    }

    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }
}

/// Checks sizes before anything is allocated in proportion to them.
pub fn check_sizes<'a>(field: &str, tokens: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<usize> {
    let count = tokens.len();
    if count == 0 || count > MAX_TOKENS {
        return Err(TextError::corrupt(field, format!("{field} has {count} entries, limits are 1 and {MAX_TOKENS}")));
    }
    let mut total = 0usize;
    for (id, token) in tokens.enumerate() {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TextError::corrupt(
                field,
                format!("{field}[{id}] has {} bytes, limit is {MAX_TOKEN_BYTES}", token.len()),
            ));
        }
        total += token.len();
    }
    if total > MAX_VOCABULARY_BYTES {
        return Err(TextError::corrupt(field, format!("{field} has {total} bytes, limit is {MAX_VOCABULARY_BYTES}")));
    }
    Ok(total)
}

/// `<0x0A>` and the like.
pub fn byte_of_piece(piece: &[u8]) -> Option<u8> {
    let hex = piece.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if hex.len() != 2 || !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}
