//! A tokenizer of any kind: its token table, and how text becomes ids.

use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{Model, NormalizedString, Normalizer, OffsetType, PreTokenizedString, PreTokenizer};

use crate::added_tokens::{AddedTokens, Segment};
use crate::bpe::{self, ListedMerges, PairMemory, Pairs, PieceIndex, ScoreOrder, Scratch, NO_TOKEN};
use crate::byte_letters::ByteLetters;
use crate::error::{Result, TextError};
use crate::pretokenizers::Rule;
use crate::splits;
use crate::token_table::TokenTable;
use crate::tokenizer_json::JsonEncoder;

/// Byte-level BPE.
pub struct ByteLevel {
    pub index: PieceIndex,
    pub merges: ListedMerges,
    pub rule: Rule,
    pub letters: ByteLetters,
    /// Token of each single byte, or NO_TOKEN: such bytes are dropped.
    pub byte_ids: [u32; 256],
}

/// SentencePiece BPE.
pub struct Sentence {
    pub index: PieceIndex,
    pub order: ScoreOrder,
    pub byte_ids: [u32; 256],
    pub unknown: u32,
    pub prefix_blank: bool,
    /// Characters that stand before a U+2581 inside some piece. Between any other character and a U+2581 no merge can
    /// reach, so the text is cut there: words stay short, and the ids are the same.
    pub joins_blank: ahash::AHashSet<char>,
}

/// BERT.
pub struct Words {
    pub normalizer: BertNormalizer,
    pub model: WordPiece,
}

pub enum Encoder {
    ByteLevel(Box<ByteLevel>, AddedTokens),
    Sentence(Box<Sentence>, AddedTokens),
    Words(Box<Words>, AddedTokens),
    Json(Box<JsonEncoder>),
}

/// Immutable once built; any thread may encode.
pub struct Tokenizer {
    pub table: TokenTable,
    pub encoder: Encoder,
    pub name: String,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    /// What a prompt gets in front and at the end.
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    /// Tokens that end an answer.
    pub ends: Vec<u32>,
    pub strips_leading_blank: bool,
}

impl Tokenizer {
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 4);
        let (added, plain): (&AddedTokens, PlainEncoder) = match &self.encoder {
            Encoder::Json(json) => return json.encode(text, parse_special),
            Encoder::ByteLevel(model, added) => (added, PlainEncoder::ByteLevel(model)),
            Encoder::Sentence(model, added) => (added, PlainEncoder::Sentence(model)),
            Encoder::Words(model, added) => (added, PlainEncoder::Words(model)),
        };
        let mut work = Work::default();
        for segment in added.segments(text, parse_special) {
            match segment {
                Segment::Token(id) => ids.push(id),
                Segment::Text(text) => match plain {
                    PlainEncoder::ByteLevel(model) => model.encode(&self.table, text, &mut work, &mut ids),
                    PlainEncoder::Sentence(model) => model.encode(&self.table, text, &mut work, &mut ids),
                    PlainEncoder::Words(model) => model.encode(text, &mut ids)?,
                },
            }
        }
        Ok(ids)
    }
}

#[derive(Clone, Copy)]
enum PlainEncoder<'a> {
    ByteLevel(&'a ByteLevel),
    Sentence(&'a Sentence),
    Words(&'a Words),
}

#[derive(Default)]
struct Work {
    words: Vec<(usize, usize)>,
    spare: Vec<(usize, usize)>,
    scratch: Scratch,
    memory: PairMemory,
}

impl ByteLevel {
    fn encode(&self, table: &TokenTable, text: &str, work: &mut Work, ids: &mut Vec<u32>) {
        let composed;
        let mut text = text;
        if self.rule.composes && !text.is_ascii() {
            let mut normalized = NormalizedString::from(text);
            normalized.nfc();
            composed = normalized.get().to_owned();
            text = &composed;
        }
        splits::words(&self.rule.steps, text, &mut work.words, &mut work.spare);
        let mut pairs = Pairs { table, index: &self.index, order: &self.merges, memory: &mut work.memory };
        for &(start, end) in &work.words {
            self.encode_word(&mut pairs, &text.as_bytes()[start..end], &mut work.scratch, ids);
        }
    }

    fn encode_word(&self, pairs: &mut Pairs<ListedMerges>, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if self.rule.ignores_merges {
            scratch.text.clear();
            for &byte in word {
                scratch.text.extend_from_slice(self.letters.letter(byte).encode_utf8(&mut [0; 4]).as_bytes());
            }
            if let Some(id) = self.index.find_text(pairs.table, &scratch.text) {
                ids.push(id);
                return;
            }
        }
        let mut symbols = std::mem::take(&mut scratch.symbols);
        symbols.clear();
        symbols.extend(word.iter().map(|&byte| self.byte_ids[byte as usize]).filter(|&id| id != NO_TOKEN));
        bpe::apply(pairs, &mut symbols, scratch);
        ids.extend_from_slice(&symbols);
        scratch.symbols = symbols;
    }
}

const BLANK: char = '\u{2581}';

impl Sentence {
    /// See `joins_blank`.
    pub fn characters_before_blank(table: &TokenTable) -> ahash::AHashSet<char> {
        let mut found = ahash::AHashSet::new();
        for id in 0..table.len() as u32 {
            let piece = std::str::from_utf8(table.piece(id)).unwrap_or("");
            for (at, _) in piece.match_indices(BLANK) {
                found.extend(piece[..at].chars().next_back());
            }
        }
        found
    }

    fn encode(&self, table: &TokenTable, text: &str, work: &mut Work, ids: &mut Vec<u32>) {
        let mut symbols = std::mem::take(&mut work.scratch.symbols);
        symbols.clear();
        let mut state = SentenceState { symbols, after_unknown: false };
        let mut pairs = Pairs { table, index: &self.index, order: &self.order, memory: &mut work.memory };
        let cuts = self.index.find_text(table, BLANK.encode_utf8(&mut [0; 4]).as_bytes()).is_some();
        let mut before = None;
        let prefix = self.prefix_blank.then_some(BLANK);
        for c in prefix.into_iter().chain(text.chars().map(|c| if c == ' ' { BLANK } else { c })) {
            if c == BLANK && cuts && before.is_some_and(|before| !self.joins_blank.contains(&before)) {
                bpe::apply(&mut pairs, &mut state.symbols, &mut work.scratch);
                ids.append(&mut state.symbols);
            }
            before = Some(c);
            self.add(table, c, &mut state);
        }
        bpe::apply(&mut pairs, &mut state.symbols, &mut work.scratch);
        ids.append(&mut state.symbols);
        work.scratch.symbols = state.symbols;
    }

    /// The first symbols of one character: its token, else its bytes, else one unknown token for a run of such.
    fn add(&self, table: &TokenTable, c: char, state: &mut SentenceState) {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer).as_bytes();
        if let Some(id) = self.index.find_text(table, bytes) {
            state.symbols.push(id);
            state.after_unknown = false;
        } else if bytes.iter().all(|&byte| self.byte_ids[byte as usize] != NO_TOKEN) {
            state.symbols.extend(bytes.iter().map(|&byte| self.byte_ids[byte as usize]));
            state.after_unknown = false;
        } else if self.unknown != NO_TOKEN && !state.after_unknown {
            state.symbols.push(self.unknown);
            state.after_unknown = true;
        }
    }
}

struct SentenceState {
    symbols: Vec<u32>,
    after_unknown: bool,
}

impl Words {
    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let failed = |error: tokenizers::Error| TextError::invalid("text", format!("WordPiece: {error}"));
        let mut normalized = NormalizedString::from(text);
        self.normalizer.normalize(&mut normalized).map_err(failed)?;
        let mut pieces = PreTokenizedString::from(normalized);
        BertPreTokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        pieces.tokenize(|word| self.model.tokenize(word.get())).map_err(failed)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(failed)?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}
