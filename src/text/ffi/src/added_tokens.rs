//! Tokens that are found in raw text before anything else happens to it: leftmost, then longest.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::{Result, TextError};
use crate::token_table::{Kind, TokenTable};

/// A part of the text: a token, or text that is still to be encoded.
pub enum Segment<'t> {
    Token(u32),
    Text(&'t str),
}

/// Two matchers over one table: with control tokens, and without.
pub struct AddedTokens {
    all: Option<Matcher>,
    plain: Option<Matcher>,
}

struct Matcher {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl AddedTokens {
    pub fn build(table: &TokenTable) -> Result<Self> {
        let with = |wanted: fn(Kind) -> bool| {
            let ids: Vec<u32> =
                (0..table.len() as u32).filter(|&id| wanted(table.kind(id)) && !table.piece(id).is_empty()).collect();
            Matcher::build(table, ids)
        };
        Ok(Self {
            all: with(|kind| kind.is_special() || kind == Kind::UserDefined)?,
            plain: with(|kind| kind == Kind::UserDefined)?,
        })
    }

    pub fn segments<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Segment<'t>> {
        let matcher = if parse_special { &self.all } else { &self.plain };
        let mut segments = Vec::new();
        let mut done = 0;
        if let Some(matcher) = matcher {
            for found in matcher.automaton.find_iter(text) {
                if done < found.start() {
                    segments.push(Segment::Text(&text[done..found.start()]));
                }
                segments.push(Segment::Token(matcher.ids[found.pattern().as_usize()]));
                done = found.end();
            }
        }
        if done < text.len() {
            segments.push(Segment::Text(&text[done..]));
        }
        segments
    }
}

impl Matcher {
    fn build(table: &TokenTable, ids: Vec<u32>) -> Result<Option<Self>> {
        if ids.is_empty() {
            return Ok(None);
        }
        let pieces = ids.iter().map(|&id| table.piece(id));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(pieces)
            .map_err(|error| TextError::corrupt("tokenizer.ggml.tokens", format!("special tokens: {error}")))?;
        Ok(Some(Self { automaton, ids }))
    }
}
