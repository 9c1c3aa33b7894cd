//! Byte-pair encoding of one word: symbols, and merges by rank.
//!
//! The lowest rank is merged first, among equals the leftmost. Short words (nearly all) are scanned; long ones (a
//! SentencePiece text is a single word) use a heap, so the cost is n log n. Oracle in the tests: the crate `tokenizers`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::error::{shown, Result, TextError};
use crate::token_table::{Kind, TokenTable};

pub const NO_TOKEN: u32 = u32::MAX;
const SCAN_LIMIT: usize = 40;

/// Piece → id over a `TokenTable` that outlives it in the same tokenizer.
pub struct PieceIndex {
    ids: HashTable<u32>,
    hasher: RandomState,
}

impl PieceIndex {
    /// Refuses two equal pieces. Empty pieces are not indexed.
    pub fn build(field: &str, table: &TokenTable) -> Result<Self> {
        let hasher = RandomState::new();
        let mut ids = HashTable::with_capacity(table.len());
        for id in 0..table.len() as u32 {
            let piece = table.piece(id);
            if piece.is_empty() {
                continue;
            }
            let hash = hasher.hash_one(piece);
            if let Some(&first) = ids.find(hash, |&other: &u32| table.piece(other) == piece) {
                return Err(TextError::corrupt(
                    field,
                    format!("{field}[{id}] is {}, which is also {field}[{first}]", shown(piece)),
                ));
            }
            ids.insert_unique(hash, id, |&other| hasher.hash_one(table.piece(other)));
        }
        Ok(Self { ids, hasher })
    }

    pub fn find(&self, table: &TokenTable, piece: &[u8]) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(piece), |&id| table.piece(id) == piece).copied()
    }

    /// The id of a piece that ordinary text may become.
    pub fn find_text(&self, table: &TokenTable, piece: &[u8]) -> Option<u32> {
        self.find(table, piece).filter(|&id| !table.kind(id).is_special())
    }
}

#[derive(Clone, Copy)]
pub struct Merge {
    pub rank: u32,
    pub id: u32,
}

/// (left id, right id) → merge. The first of two equal pairs wins.
pub struct Merges {
    map: std::collections::HashMap<u64, Merge, RandomState>,
}

impl Merges {
    pub fn with_capacity(count: usize) -> Self {
        Self { map: std::collections::HashMap::with_capacity_and_hasher(count, RandomState::new()) }
    }

    pub fn add(&mut self, left: u32, right: u32, merge: Merge) {
        self.map.entry(Self::key(left, right)).or_insert(merge);
    }

    pub fn find(&self, left: u32, right: u32) -> Option<Merge> {
        self.map.get(&Self::key(left, right)).copied()
    }

    fn key(left: u32, right: u32) -> u64 {
        (u64::from(left) << 32) | u64::from(right)
    }

    /// Replaces the symbols of one word by their merged form.
    pub fn apply(&self, symbols: &mut Vec<u32>, scratch: &mut Scratch) {
        if symbols.len() < 2 {
            return;
        }
        if symbols.len() <= SCAN_LIMIT {
            self.apply_by_scan(symbols, &mut scratch.merges);
        } else {
            self.apply_by_heap(symbols, scratch);
        }
    }

    fn apply_by_scan(&self, symbols: &mut Vec<u32>, pairs: &mut Vec<Option<Merge>>) {
        pairs.clear();
        pairs.extend(symbols.windows(2).map(|pair| self.find(pair[0], pair[1])));
        loop {
            let mut best: Option<(u32, usize)> = None;
            for (at, pair) in pairs.iter().enumerate() {
                if let Some(merge) = pair {
                    if best.is_none_or(|(rank, _)| merge.rank < rank) {
                        best = Some((merge.rank, at));
                    }
                }
            }
            let Some((_, at)) = best else { return };
            symbols[at] = pairs[at].map_or(NO_TOKEN, |merge| merge.id);
            symbols.remove(at + 1);
            pairs.remove(at);
            if at < pairs.len() {
                pairs[at] = self.find(symbols[at], symbols[at + 1]);
            }
            if at > 0 {
                pairs[at - 1] = self.find(symbols[at - 1], symbols[at]);
            }
        }
    }

    fn apply_by_heap(&self, symbols: &mut Vec<u32>, scratch: &mut Scratch) {
        let count = symbols.len();
        let links = &mut scratch.links;
        links.clear();
        links.extend((0..count).map(|i| (i.wrapping_sub(1), i + 1)));
        let heap = &mut scratch.heap;
        heap.clear();
        for at in 0..count - 1 {
            if let Some(merge) = self.find(symbols[at], symbols[at + 1]) {
                heap.push(Reverse((merge.rank, at, symbols[at], symbols[at + 1], merge.id)));
            }
        }
        while let Some(Reverse((_, at, left, right, id))) = heap.pop() {
            let next = links[at].1;
            if symbols[at] != left || next >= count || symbols[next] != right {
                continue;
            }
            symbols[at] = id;
            symbols[next] = NO_TOKEN;
            let after = links[next].1;
            links[at].1 = after;
            if after < count {
                links[after].0 = at;
                if let Some(merge) = self.find(id, symbols[after]) {
                    heap.push(Reverse((merge.rank, at, id, symbols[after], merge.id)));
                }
            }
            let before = links[at].0;
            if before < count {
                if let Some(merge) = self.find(symbols[before], id) {
                    heap.push(Reverse((merge.rank, before, symbols[before], id, merge.id)));
                }
            }
        }
        symbols.retain(|&id| id != NO_TOKEN);
    }
}

type HeapEntry = Reverse<(u32, usize, u32, u32, u32)>;

/// Buffers that one encode call reuses from word to word.
#[derive(Default)]
pub struct Scratch {
    pub symbols: Vec<u32>,
    pub text: Vec<u8>,
    merges: Vec<Option<Merge>>,
    links: Vec<(usize, usize)>,
    heap: BinaryHeap<HeapEntry>,
}

/// Merges in the order of the file (`left right` each); the blank at byte 0 of a line is part of the left piece.
pub fn merges_from_lines(table: &TokenTable, index: &PieceIndex, lines: &[&[u8]]) -> Result<Merges> {
    const FIELD: &str = "tokenizer.ggml.merges";
    let mut merges = Merges::with_capacity(lines.len());
    let mut joined = Vec::new();
    for (rank, line) in lines.iter().enumerate() {
        let cut = line.iter().skip(1).position(|&b| b == b' ').map(|at| at + 1);
        let Some(cut) = cut else {
            return Err(TextError::corrupt(FIELD, format!("{FIELD}[{rank}] is {}, it has no blank", shown(line))));
        };
        let (left, right) = (&line[..cut], &line[cut + 1..]);
        joined.clear();
        joined.extend_from_slice(left);
        joined.extend_from_slice(right);
        let find = |piece: &[u8]| {
            index.find(table, piece).ok_or_else(|| {
                TextError::corrupt(
                    FIELD,
                    format!("{FIELD}[{rank}] is {}, but {} is no token", shown(line), shown(piece)),
                )
            })
        };
        merges.add(find(left)?, find(right)?, Merge { rank: rank as u32, id: find(&joined)? });
    }
    Ok(merges)
}

/// Merges of a SentencePiece vocabulary: each normal piece from each cut into two known pieces, by falling score.
pub fn merges_from_scores(table: &TokenTable, index: &PieceIndex, scores: &[f32]) -> Result<Merges> {
    const WORK_LIMIT: u64 = 1 << 31;
    let mut work = 0u64;
    let mut order: Vec<u32> = (0..table.len() as u32).filter(|&id| table.kind(id) == Kind::Normal).collect();
    for &id in &order {
        work += (table.piece(id).len() as u64).pow(2);
    }
    if work > WORK_LIMIT {
        return Err(TextError::corrupt(
            "tokenizer.ggml.tokens",
            format!("tokenizer.ggml.tokens has pieces of {work} squared bytes in sum, limit is {WORK_LIMIT}"),
        ));
    }
    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
    let part = |piece: &[u8]| {
        let id = index.find(table, piece)?;
        matches!(table.kind(id), Kind::Normal | Kind::UserDefined | Kind::Unused).then_some(id)
    };
    let mut merges = Merges::with_capacity(order.len());
    let mut cuts = Vec::new();
    let mut rank = 0u32;
    for id in order {
        let piece = table.piece(id);
        cuts.clear();
        for cut in 1..piece.len() {
            // Cuts inside a character find no piece, since all pieces are UTF-8.
            if piece[cut] & 0xC0 == 0x80 {
                continue;
            }
            if let Some(right) = part(&piece[cut..]) {
                if let Some(left) = part(&piece[..cut]) {
                    cuts.push((left, right));
                }
            }
        }
        cuts.sort_unstable();
        for &(left, right) in &cuts {
            merges.add(left, right, Merge { rank, id });
            rank += 1;
        }
    }
    Ok(merges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::models::bpe::BPE;
    use tokenizers::Model;

    struct Rng(u64);
    impl Rng {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) as usize) % n
        }
    }

    /// A random vocabulary over `letters`, its merge lines, and the same model by the library.
    fn random_model(rng: &mut Rng, letters: &[char], count: usize) -> (TokenTable, Vec<String>, BPE) {
        let mut pieces: Vec<String> = letters.iter().map(|c| c.to_string()).collect();
        let mut lines = Vec::new();
        let mut pairs = Vec::new();
        while lines.len() < count {
            let left = pieces[rng.below(pieces.len())].clone();
            let right = pieces[rng.below(pieces.len())].clone();
            let joined = format!("{left}{right}");
            if joined.chars().count() > 12 || pieces.contains(&joined) {
                continue;
            }
            lines.push(format!("{left} {right}"));
            pairs.push((left, right));
            pieces.push(joined);
        }
        let mut table = TokenTable::with_capacity(pieces.len(), 0);
        for piece in &pieces {
            table.push(piece.as_bytes(), piece.as_bytes(), Kind::Normal);
        }
        let vocab: ahash::AHashMap<String, u32> =
            pieces.iter().enumerate().map(|(id, piece)| (piece.clone(), id as u32)).collect();
        let library = BPE::builder().vocab_and_merges(vocab, pairs).build().unwrap();
        (table, lines, library)
    }

    #[test]
    fn agrees_with_the_library_on_random_vocabularies() {
        let mut rng = Rng(7);
        let letters: Vec<char> = "abcdé▁".chars().collect();
        for round in 0..20 {
            let (table, lines, library) = random_model(&mut rng, &letters, 20 + round * 8);
            let index = PieceIndex::build("tokens", &table).unwrap();
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            let merges = merges_from_lines(&table, &index, &lines).unwrap();
            let mut scratch = Scratch::default();
            for _ in 0..60 {
                let length = 1 + rng.below(if round % 2 == 0 { 20 } else { 300 });
                let word: String = (0..length).map(|_| letters[rng.below(letters.len())]).collect();
                let mut symbols: Vec<u32> =
                    word.chars().map(|c| index.find(&table, c.to_string().as_bytes()).unwrap()).collect();
                merges.apply(&mut symbols, &mut scratch);
                let expected: Vec<u32> = library.tokenize(&word).unwrap().iter().map(|t| t.id).collect();
                assert_eq!(symbols, expected, "{word}");
            }
        }
    }

    #[test]
    fn duplicates_and_stray_merges_are_named() {
        let mut table = TokenTable::with_capacity(3, 3);
        for piece in ["a", "b", "a"] {
            table.push(piece.as_bytes(), piece.as_bytes(), Kind::Normal);
        }
        let error = PieceIndex::build("tokens", &table).err().unwrap();
        assert!(error.message.contains("tokens[2]") && error.message.contains("tokens[0]"), "{}", error.message);
        let mut table = TokenTable::with_capacity(2, 2);
        table.push(b"a", b"a", Kind::Normal);
        table.push(b"b", b"b", Kind::Normal);
        let index = PieceIndex::build("tokens", &table).unwrap();
        for line in ["a b", "ab", "", " ", "  ", "c a"] {
            assert!(merges_from_lines(&table, &index, &[line.as_bytes()]).is_err(), "{line:?}");
        }
    }
}
