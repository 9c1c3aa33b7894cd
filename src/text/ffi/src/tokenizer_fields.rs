//! Tokenizers from the `tokenizer.ggml.*` fields of a GGUF file.

use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;

use crate::added_tokens::AddedTokens;
use crate::bpe::{ListedMerges, PieceIndex, ScoreOrder, NO_TOKEN};
use crate::byte_letters::ByteLetters;
use crate::end_tokens;
use crate::error::{shown, Code, Result, TextError};
use crate::pretokenizers;
use crate::token_table::{byte_of_piece, check_sizes, Kind, TokenTable};
use crate::tokenizer::{ByteLevel, Encoder, Sentence, Tokenizer, Words};

const TOKENS: &str = "tokenizer.ggml.tokens";
const BLANK: &str = "\u{2581}";

/// What the file says. Nothing is kept after the build.
#[derive(Default)]
pub struct Fields<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a [u8]>,
    pub merges: Vec<&'a [u8]>,
    pub scores: &'a [f32],
    pub types: &'a [i32],
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unknown: Option<u32>,
    pub separator: Option<u32>,
    pub padding: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

pub fn build(fields: &Fields) -> Result<Tokenizer> {
    check(fields)?;
    match fields.model {
        "gpt2" => byte_level(fields),
        "llama" => sentence(fields),
        "bert" => words(fields),
        other => Err(TextError::new(
            Code::Unsupported,
            "tokenizer.ggml.model",
            format!("tokenizer.ggml.model is {other:?}, known are gpt2, llama and bert"),
        )),
    }
}

fn check(fields: &Fields) -> Result<()> {
    check_sizes(TOKENS, fields.tokens.iter().copied())?;
    let count = fields.tokens.len();
    for (id, token) in fields.tokens.iter().enumerate() {
        if std::str::from_utf8(token).is_err() {
            return Err(TextError::corrupt(TOKENS, format!("{TOKENS}[{id}] is {}, not UTF-8", shown(token))));
        }
    }
    for (name, length) in [("scores", fields.scores.len()), ("token_type", fields.types.len())] {
        if length != 0 && length != count {
            let field = format!("tokenizer.ggml.{name}");
            return Err(TextError::corrupt(&field, format!("{field} has {length} entries, tokens has {count}")));
        }
    }
    const MAX_MERGES: usize = 1 << 24;
    if fields.merges.len() > MAX_MERGES {
        let message = format!("tokenizer.ggml.merges has {} entries, limit is {MAX_MERGES}", fields.merges.len());
        return Err(TextError::corrupt("tokenizer.ggml.merges", message));
    }
    let ids = [
        ("bos_token_id", fields.bos),
        ("eos_token_id", fields.eos),
        ("eot_token_id", fields.eot),
        ("unknown_token_id", fields.unknown),
        ("seperator_token_id", fields.separator),
        ("padding_token_id", fields.padding),
    ];
    for (name, id) in ids {
        if let Some(id) = id.filter(|&id| id as usize >= count) {
            let field = format!("tokenizer.ggml.{name}");
            return Err(TextError::corrupt(&field, format!("{field} is {id}, tokens has {count} entries")));
        }
    }
    Ok(())
}

/// The kind of each token: what the file says, corrected where a known role says more.
fn kinds(fields: &Fields) -> Vec<Kind> {
    let typed = fields.types.iter().any(|&number| number != 1);
    let mut kinds: Vec<Kind> = (0..fields.tokens.len())
        .map(|id| match fields.types.get(id) {
            Some(2) => Kind::Unknown,
            Some(3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(6) => Kind::Byte,
            _ if !typed && fields.model == "llama" && byte_of_piece(fields.tokens[id]).is_some() => Kind::Byte,
            _ => Kind::Normal,
        })
        .collect();
    for id in [fields.bos, fields.eos, fields.eot].into_iter().flatten() {
        if kinds[id as usize] == Kind::Normal {
            kinds[id as usize] = Kind::Control;
        }
    }
    if let Some(id) = fields.unknown.filter(|_| !typed) {
        kinds[id as usize] = Kind::Unknown;
    }
    for (id, token) in fields.tokens.iter().enumerate() {
        let plain = matches!(kinds[id], Kind::Normal | Kind::UserDefined);
        if plain && end_tokens::is_turn_end(token) {
            kinds[id] = Kind::Control;
        }
    }
    kinds
}

fn byte_level(fields: &Fields) -> Result<Tokenizer> {
    let pre = if fields.pre.is_empty() { "default" } else { fields.pre };
    let rule = pretokenizers::find(pre).ok_or_else(|| {
        let known: Vec<&str> = pretokenizers::names().collect();
        let message = format!("tokenizer.ggml.pre is {pre:?}, known are {}", known.join(", "));
        TextError::new(Code::Unsupported, "tokenizer.ggml.pre", message)
    })?;
    let letters = ByteLetters::new();
    let bytes_total = fields.tokens.iter().map(|token| token.len()).sum();
    let mut table = TokenTable::with_capacity(fields.tokens.len(), bytes_total);
    let mut spelled = Vec::new();
    for (token, kind) in fields.tokens.iter().zip(kinds(fields)) {
        spelled.clear();
        match kind {
            Kind::Normal | Kind::Byte => letters.spell(token, &mut spelled),
            Kind::UserDefined => spelled.extend_from_slice(token),
            Kind::Unused | Kind::Control | Kind::Unknown => {}
        }
        table.push(token, &spelled, kind);
    }
    let index = PieceIndex::build(TOKENS, &table)?;
    let merges = ListedMerges::build(&table, &index, &fields.merges)?;
    let mut byte_ids = [NO_TOKEN; 256];
    for (byte, id) in byte_ids.iter_mut().enumerate() {
        let letter = letters.letter(byte as u8);
        *id = index.find_text(&table, letter.encode_utf8(&mut [0; 4]).as_bytes()).unwrap_or(NO_TOKEN);
    }
    let added = AddedTokens::build(&table)?;
    let add_bos = fields.add_bos.unwrap_or(rule.adds_bos);
    let add_eos = fields.add_eos.unwrap_or(rule.adds_eos);
    let model = ByteLevel { index, merges, rule, letters, byte_ids };
    Ok(Tokenizer {
        ends: end_tokens::find(&table, &[fields.eos, fields.eot]),
        table,
        encoder: Encoder::ByteLevel(Box::new(model), added),
        name: format!("gpt2/{pre}"),
        bos: fields.bos,
        eos: fields.eos,
        prefix: fields.bos.filter(|_| add_bos).into_iter().collect(),
        suffix: fields.eos.filter(|_| add_eos).into_iter().collect(),
        strips_leading_blank: false,
    })
}

fn sentence(fields: &Fields) -> Result<Tokenizer> {
    if fields.scores.is_empty() {
        let field = "tokenizer.ggml.scores";
        return Err(TextError::corrupt(field, format!("{field} is missing, model llama needs it")));
    }
    let bytes_total = fields.tokens.iter().map(|token| token.len()).sum();
    let mut table = TokenTable::with_capacity(fields.tokens.len(), bytes_total);
    let mut byte_ids = [NO_TOKEN; 256];
    let mut spelled = Vec::new();
    for (id, (token, kind)) in fields.tokens.iter().zip(kinds(fields)).enumerate() {
        match kind {
            Kind::Normal => table.push(token, blanked(token, &mut spelled), kind),
            Kind::UserDefined => table.push(token, token, kind),
            Kind::Byte => {
                let byte = byte_of_piece(token).ok_or_else(|| {
                    TextError::corrupt(TOKENS, format!("{TOKENS}[{id}] is {}, not <0xNN>", shown(token)))
                })?;
                byte_ids[byte as usize] = id as u32;
                table.push(token, &[byte], kind);
            }
            Kind::Unused | Kind::Control | Kind::Unknown => table.push(token, b"", kind),
        }
    }
    let index = PieceIndex::build(TOKENS, &table)?;
    let order = ScoreOrder::build(&table, fields.scores)?;
    let unknown = fields
        .unknown
        .or_else(|| (0..table.len() as u32).find(|&id| table.kind(id) == Kind::Unknown))
        .unwrap_or(NO_TOKEN);
    let added = AddedTokens::build(&table)?;
    let prefix_blank = fields.add_space_prefix.unwrap_or(true);
    let joins_blank = Sentence::characters_before_blank(&table);
    let model = Sentence { index, order, byte_ids, unknown, prefix_blank, joins_blank };
    Ok(Tokenizer {
        ends: end_tokens::find(&table, &[fields.eos, fields.eot]),
        table,
        encoder: Encoder::Sentence(Box::new(model), added),
        name: "llama/default".to_owned(),
        bos: fields.bos,
        eos: fields.eos,
        prefix: fields.bos.filter(|_| fields.add_bos.unwrap_or(true)).into_iter().collect(),
        suffix: fields.eos.filter(|_| fields.add_eos.unwrap_or(false)).into_iter().collect(),
        strips_leading_blank: prefix_blank,
    })
}

/// The piece with its U+2581 turned into blanks, in place of what `out` held.
fn blanked<'a>(piece: &[u8], out: &'a mut Vec<u8>) -> &'a [u8] {
    out.clear();
    let mut rest = piece;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(BLANK.as_bytes()) {
            out.push(b' ');
            rest = after;
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

/// The vocabulary entry of WordPiece: U+2581 marked a word start, everything else continues a word.
fn word_piece(token: &str, kind: Kind) -> String {
    let bracketed = token.starts_with('[') && token.ends_with(']') && token.len() > 2;
    match token.strip_prefix(BLANK) {
        Some(start) => start.to_owned(),
        None if bracketed || kind != Kind::Normal => token.to_owned(),
        None => format!("##{token}"),
    }
}

fn words(fields: &Fields) -> Result<Tokenizer> {
    let mut kinds = kinds(fields);
    for (id, token) in fields.tokens.iter().enumerate() {
        if kinds[id] == Kind::Normal && matches!(*token, b"[CLS]" | b"[SEP]" | b"[PAD]" | b"[MASK]") {
            kinds[id] = Kind::Control;
        } else if kinds[id] == Kind::Normal && *token == b"[UNK]" {
            kinds[id] = Kind::Unknown;
        }
    }
    let mut table = TokenTable::with_capacity(fields.tokens.len(), 0);
    let mut vocabulary = ahash::AHashMap::with_capacity(fields.tokens.len());
    let mut unknown_piece = "[UNK]".to_owned();
    let mut spelled = Vec::new();
    for (id, (token, kind)) in fields.tokens.iter().zip(kinds).enumerate() {
        let text = std::str::from_utf8(token).unwrap_or("");
        let piece = word_piece(text, kind);
        if kind == Kind::Unknown && fields.unknown.is_none_or(|unknown| unknown as usize == id) {
            unknown_piece = piece.clone();
        }
        let silent = kind.is_special() || kind == Kind::Unused;
        table.push(token, if silent { b"" } else { blanked(token, &mut spelled) }, kind);
        if !piece.is_empty() && vocabulary.insert(piece, id as u32).is_some() {
            let message = format!("{TOKENS}[{id}] is {}, which appears twice", shown(token));
            return Err(TextError::corrupt(TOKENS, message));
        }
    }
    let named = |name: &str| vocabulary.get(name).copied();
    let bos = fields.bos.or_else(|| named("[CLS]"));
    let eos = fields.separator.or_else(|| named("[SEP]")).or(fields.eos);
    let model = WordPiece::builder()
        .vocab(vocabulary)
        .unk_token(unknown_piece)
        .max_input_chars_per_word(100)
        .build()
        .map_err(|error| TextError::corrupt(TOKENS, format!("WordPiece: {error}")))?;
    let normalizer = BertNormalizer::new(true, true, Some(true), true);
    let added = AddedTokens::build(&table)?;
    Ok(Tokenizer {
        ends: end_tokens::find(&table, &[fields.eos.or(eos)]),
        table,
        encoder: Encoder::Words(Box::new(Words { normalizer, model }), added),
        name: if fields.pre.is_empty() { "bert".to_owned() } else { format!("bert/{}", fields.pre) },
        bos,
        eos: fields.eos.or(eos),
        prefix: bos.filter(|_| fields.add_bos.unwrap_or(true)).into_iter().collect(),
        suffix: eos.filter(|_| fields.add_eos.unwrap_or(true)).into_iter().collect(),
        strips_leading_blank: true,
    })
}
