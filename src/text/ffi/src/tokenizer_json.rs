//! Tokenizers from a Hugging Face tokenizer.json, run by the crate `tokenizers` itself.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, ModelWrapper, NormalizerWrapper, OffsetType, PreTokenizer, PreTokenizerWrapper,
    Token,
};

use crate::byte_letters::ByteLetters;
use crate::end_tokens;
use crate::error::{shown, Result, TextError};
use crate::token_table::{byte_of_piece, check_sizes, Kind, TokenTable, MAX_TOKENS};
use crate::tokenizer::{Encoder, Tokenizer};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: ModelWrapper,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

/// The pipeline of the file. Two sets of added tokens stand for the two ways to treat special ones.
pub struct JsonEncoder {
    model: ModelWrapper,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    all: AddedVocabulary,
    plain: AddedVocabulary,
}

impl JsonEncoder {
    pub fn encode(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        let failed = |error: tokenizers::Error| TextError::invalid("text", format!("tokenizer.json: {error}"));
        let added = if parse_special { &self.all } else { &self.plain };
        let mut pieces = added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        pieces.tokenize(|word| self.model.tokenize(word.get())).map_err(failed)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// `config` is the text of tokenizer_config.json, or empty.
pub fn build(json: &str, config: &str) -> Result<Tokenizer> {
    let mut file: File = serde_json::from_str(json)
        .map_err(|error| TextError::corrupt("tokenizer.json", format!("tokenizer.json: {error}")))?;
    if let ModelWrapper::BPE(bpe) = &mut file.model {
        bpe.dropout = None;
    }
    let config = read_config(config)?;
    let names = declared_ids(&file)?;
    let table = token_table(&file, &names)?;
    let vocabulary = |wanted: fn(&AddedToken) -> bool| -> Result<AddedVocabulary> {
        let ids = DeclaredIds(file.added_tokens.iter().map(|a| (a.token.content.clone(), a.id)).collect());
        let mut added = AddedVocabulary::new();
        let tokens = file.added_tokens.iter().map(|a| a.token.clone()).filter(wanted);
        added
            .add_tokens(tokens, &ids, file.normalizer.as_ref())
            .map_err(|error| TextError::corrupt("added_tokens", format!("added_tokens: {error}")))?;
        Ok(added)
    };
    let (all, plain) = (vocabulary(|_| true)?, vocabulary(|token| !token.special)?);
    let (mut prefix, mut suffix) = affixes(file.post_processor.as_ref());
    let known = |id: &u32| (*id as usize) < table.len();
    prefix.retain(known);
    suffix.retain(known);
    let id_of = |key: &str| token_name(&config, key).and_then(|name| names.get(name.as_str()).copied());
    let bos = id_of("bos_token").or(id_of("cls_token")).or(prefix.first().copied());
    let eos = id_of("eos_token").or(suffix.last().copied());
    apply_switch(config.get("add_bos_token"), bos, &mut prefix);
    apply_switch(config.get("add_eos_token"), eos, &mut suffix);
    let rule = DecodeRule::of(&file);
    Ok(Tokenizer {
        ends: end_tokens::find(&table, &[eos]),
        table,
        name: "json".to_owned(),
        bos,
        eos,
        prefix,
        suffix,
        strips_leading_blank: rule.strips_leading_blank,
        encoder: Encoder::Json(Box::new(JsonEncoder {
            model: file.model,
            normalizer: file.normalizer,
            pre_tokenizer: file.pre_tokenizer,
            all,
            plain,
        })),
    })
}

fn read_config(config: &str) -> Result<Value> {
    if config.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(config)
        .map_err(|error| TextError::corrupt("tokenizer_config.json", format!("tokenizer_config.json: {error}")))
}

/// A token named in tokenizer_config.json, as text or as an object with `content`.
fn token_name(config: &Value, key: &str) -> Option<String> {
    let value = config.get(key)?;
    let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
    Some(text.to_owned())
}

fn apply_switch(switch: Option<&Value>, id: Option<u32>, affix: &mut Vec<u32>) {
    match (switch.and_then(Value::as_bool), id) {
        (Some(true), Some(id)) if !affix.contains(&id) => affix.push(id),
        (Some(false), Some(id)) => affix.retain(|&other| other != id),
        _ => {}
    }
}

fn declared_ids(file: &File) -> Result<HashMap<String, u32>> {
    let mut names = file.model.get_vocab();
    for added in &file.added_tokens {
        names.insert(added.token.content.clone(), added.id);
    }
    if names.len() > MAX_TOKENS {
        let message = format!("tokenizer.json has {} tokens, limit is {MAX_TOKENS}", names.len());
        return Err(TextError::corrupt("model.vocab", message));
    }
    for (name, &id) in &names {
        if id as usize >= MAX_TOKENS {
            let message = format!("the id of {} is {id}, limit is {}", shown(name.as_bytes()), MAX_TOKENS - 1);
            return Err(TextError::corrupt("model.vocab", message));
        }
    }
    check_sizes("model.vocab", names.keys().map(|name| name.as_bytes()).collect::<Vec<_>>().into_iter())?;
    Ok(names)
}

fn token_table(file: &File, names: &HashMap<String, u32>) -> Result<TokenTable> {
    let count = names.values().max().map_or(0, |&id| id as usize + 1);
    let mut pieces: Vec<Option<(&str, Kind)>> = vec![None; count];
    for (name, &id) in names {
        if let Some((other, _)) = pieces[id as usize].replace((name.as_str(), Kind::Normal)) {
            let both = format!("{} and {}", shown(name.as_bytes()), shown(other.as_bytes()));
            return Err(TextError::corrupt("model.vocab", format!("id {id} is given to {both}")));
        }
    }
    let unknown = match &file.model {
        ModelWrapper::BPE(model) => model.unk_token.clone(),
        ModelWrapper::WordPiece(model) => Some(model.unk_token.clone()),
        ModelWrapper::WordLevel(model) => Some(model.unk_token.clone()),
        ModelWrapper::Unigram(_) => None,
    };
    for added in &file.added_tokens {
        let kind = if added.token.special { Kind::Control } else { Kind::UserDefined };
        pieces[added.id as usize] = Some((&added.token.content, kind));
    }
    if let Some(id) = unknown.and_then(|name| names.get(&name)) {
        if let Some(entry) = &mut pieces[*id as usize] {
            entry.1 = Kind::Unknown;
        }
    }
    let rule = DecodeRule::of(file);
    let mut table = TokenTable::with_capacity(count, 0);
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.clear();
        let (name, mut kind) = piece.unwrap_or(("", Kind::Unused));
        match kind {
            Kind::Normal => kind = rule.spell(name, &mut bytes),
            Kind::UserDefined => bytes.extend_from_slice(name.as_bytes()),
            _ => {}
        }
        table.push(name.as_bytes(), &bytes, kind);
    }
    Ok(table)
}

/// How a piece turns into bytes, read from the file's decoder.
struct DecodeRule {
    letters: Option<ByteLetters>,
    byte_fallback: bool,
    replacements: Vec<(String, String)>,
    continuing_prefix: Option<String>,
    strips_leading_blank: bool,
}

impl DecodeRule {
    fn of(file: &File) -> Self {
        let mut rule = DecodeRule {
            letters: None,
            byte_fallback: false,
            replacements: Vec::new(),
            continuing_prefix: None,
            strips_leading_blank: false,
        };
        match &file.decoder {
            Some(decoder) => rule.read(decoder),
            None if contains_byte_level(file.pre_tokenizer.as_ref()) => rule.letters = Some(ByteLetters::new()),
            None => {}
        }
        rule
    }

    fn read(&mut self, decoder: &Value) {
        let text = |key: &str| decoder.get(key).and_then(Value::as_str);
        match text("type").unwrap_or("") {
            "ByteLevel" => self.letters = Some(ByteLetters::new()),
            "ByteFallback" => self.byte_fallback = true,
            "Replace" => {
                let pattern = decoder.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str);
                if let (Some(pattern), Some(content)) = (pattern, text("content")) {
                    self.replacements.push((pattern.to_owned(), content.to_owned()));
                }
            }
            "Metaspace" => {
                self.replacements.push((text("replacement").unwrap_or("\u{2581}").to_owned(), " ".to_owned()));
                let prefixed = decoder.get("add_prefix_space").and_then(Value::as_bool).unwrap_or(true);
                self.strips_leading_blank |= prefixed && text("prepend_scheme") != Some("never");
            }
            "Strip" => {
                let start = decoder.get("start").and_then(Value::as_u64).unwrap_or(0);
                self.strips_leading_blank |= start > 0 && text("content") == Some(" ");
            }
            "WordPiece" => {
                self.continuing_prefix = Some(text("prefix").unwrap_or("##").to_owned());
                self.strips_leading_blank = true;
            }
            "BPEDecoder" => self.replacements.push((text("suffix").unwrap_or("</w>").to_owned(), " ".to_owned())),
            "Sequence" => {
                for part in decoder.get("decoders").and_then(Value::as_array).into_iter().flatten() {
                    self.read(part);
                }
            }
            _ => {}
        }
    }

    fn spell(&self, piece: &str, out: &mut Vec<u8>) -> Kind {
        if self.byte_fallback {
            if let Some(byte) = byte_of_piece(piece.as_bytes()) {
                out.push(byte);
                return Kind::Byte;
            }
        }
        if let Some(letters) = &self.letters {
            letters.spell(piece.as_bytes(), out);
            return Kind::Normal;
        }
        let mut text = piece.to_owned();
        if let Some(prefix) = &self.continuing_prefix {
            text = text.strip_prefix(prefix.as_str()).map_or_else(|| format!(" {piece}"), str::to_owned);
        }
        for (pattern, content) in self.replacements.iter().filter(|(pattern, _)| !pattern.is_empty()) {
            text = text.replace(pattern.as_str(), content);
        }
        out.extend_from_slice(text.as_bytes());
        Kind::Normal
    }
}

fn contains_byte_level(pre_tokenizer: Option<&PreTokenizerWrapper>) -> bool {
    match pre_tokenizer {
        Some(PreTokenizerWrapper::ByteLevel(_)) => true,
        Some(PreTokenizerWrapper::Sequence(parts)) => parts.as_ref().iter().any(|part| contains_byte_level(Some(part))),
        _ => false,
    }
}

/// What the post-processor puts before and behind a single text.
fn affixes(processor: Option<&Value>) -> (Vec<u32>, Vec<u32>) {
    let Some(processor) = processor else { return Default::default() };
    let id = |key: &str| processor.get(key)?.get(1)?.as_u64().map(|id| id as u32);
    match processor.get("type").and_then(Value::as_str) {
        Some("TemplateProcessing") => template_affixes(processor),
        Some("BertProcessing" | "RobertaProcessing") => {
            (id("cls").into_iter().collect(), id("sep").into_iter().collect())
        }
        Some("Sequence") => {
            let parts = processor.get("processors").and_then(Value::as_array);
            let mut found = parts.into_iter().flatten().map(|part| affixes(Some(part)));
            found.find(|(before, behind)| !before.is_empty() || !behind.is_empty()).unwrap_or_default()
        }
        _ => Default::default(),
    }
}

fn template_affixes(processor: &Value) -> (Vec<u32>, Vec<u32>) {
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let mut text_seen = false;
    for part in processor.get("single").and_then(Value::as_array).into_iter().flatten() {
        text_seen |= part.get("Sequence").is_some();
        let name = part.get("SpecialToken").and_then(|token| token.get("id")).and_then(Value::as_str);
        let token = name.and_then(|name| processor.get("special_tokens")?.get(name));
        let ids = token.and_then(|token| token.get("ids")).and_then(Value::as_array);
        let side = if text_seen { &mut behind } else { &mut before };
        side.extend(ids.into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32));
    }
    (before, behind)
}

/// Gives `AddedVocabulary` the ids that the file declares, also where they leave gaps.
struct DeclaredIds(HashMap<String, u32>);

impl Model for DeclaredIds {
    type Trainer = BpeTrainer;
    fn tokenize(&self, _: &str) -> tokenizers::Result<Vec<Token>> {
        Ok(Vec::new())
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.get(token).copied()
    }
    fn id_to_token(&self, _: u32) -> Option<String> {
        None
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.clone()
    }
    fn get_vocab_size(&self) -> usize {
        self.0.len()
    }
    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}
