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

/// What two neighbours become. The lowest rank goes first; equal ranks are equal pairs.
#[derive(Clone, Copy)]
pub struct Merge {
    pub rank: u64,
    pub id: u32,
}

/// Which pairs merge, and when. A merge is known by the piece that comes out and the length of its left part, which tell
/// both parts, since no two pieces are equal: so a vocabulary is ready without looking up the parts of all its merges.
pub trait MergeOrder {
    /// Bytes of the longest piece that comes out of a merge.
    fn longest(&self) -> usize;
    /// Of the pair whose pieces end to end are the piece `id`, `left` having `cut` bytes.
    fn rank(&self, table: &TokenTable, pair: (u32, u32), cut: usize, id: u32) -> Option<u64>;
}

const NOT_MERGED: u32 = u32::MAX;

/// Looking up one piece takes time in proportion to its length; an answer may need as many looks as it has characters.
fn check_lengths(lengths: impl Iterator<Item = usize>) -> Result<usize> {
    const WORK_LIMIT: u64 = 1 << 31;
    let (mut longest, mut work) = (0, 0u64);
    for length in lengths {
        longest = longest.max(length);
        work += (length as u64).pow(2);
    }
    if work > WORK_LIMIT {
        return Err(TextError::corrupt(
            "tokenizer.ggml.tokens",
            format!("tokenizer.ggml.tokens has pieces of {work} squared bytes in sum, limit is {WORK_LIMIT}"),
        ));
    }
    Ok(longest)
}

/// Merges that a file lists. The first of two equal pairs wins.
pub struct ListedMerges {
    first: Vec<(u32, u32)>, // by id of what comes out: (rank, cut) of the first merge into it
    others: std::collections::HashMap<(u32, u32), u32, RandomState>, // (id, cut) → rank
    longest: usize,
}

impl ListedMerges {
    /// `left right` each; the blank at byte 0 of a line is part of the left piece. Merges of parts that are no tokens
    /// can never happen, and are not told from others.
    pub fn build(table: &TokenTable, index: &PieceIndex, lines: &[&[u8]]) -> Result<Self> {
        const FIELD: &str = "tokenizer.ggml.merges";
        let mut first = vec![(NOT_MERGED, 0); table.len()];
        let mut others = std::collections::HashMap::with_hasher(RandomState::new());
        let mut joined = Vec::new();
        let mut next = 0; // most files number the pieces in the order of the merges
        for (rank, line) in lines.iter().enumerate() {
            let cut = line.iter().skip(1).position(|&b| b == b' ').map(|at| at + 1);
            let Some(cut) = cut else {
                return Err(TextError::corrupt(FIELD, format!("{FIELD}[{rank}] is {}, it has no blank", shown(line))));
            };
            joined.clear();
            joined.extend_from_slice(&line[..cut]);
            joined.extend_from_slice(&line[cut + 1..]);
            let known = (next as usize) < table.len() && table.piece(next) == joined;
            let found = if known { Some(next) } else { index.find(table, &joined) };
            let Some(id) = found else {
                let message = format!("{FIELD}[{rank}] is {}, but {} is no token", shown(line), shown(&joined));
                return Err(TextError::corrupt(FIELD, message));
            };
            next = id + 1;
            let (rank, cut) = (rank as u32, cut as u32);
            let place = &mut first[id as usize];
            if place.0 == NOT_MERGED {
                *place = (rank, cut);
            } else if place.1 != cut {
                others.entry((id, cut)).or_insert(rank);
            }
        }
        let merged = (0..table.len()).filter(|&id| first[id].0 != NOT_MERGED);
        let longest = check_lengths(merged.map(|id| table.piece(id as u32).len()))?;
        Ok(Self { first, others, longest })
    }
}

impl MergeOrder for ListedMerges {
    fn longest(&self) -> usize {
        self.longest
    }

    fn rank(&self, _: &TokenTable, _: (u32, u32), cut: usize, id: u32) -> Option<u64> {
        let (rank, first_cut) = self.first[id as usize];
        if rank == NOT_MERGED {
            return None;
        }
        if first_cut as usize == cut {
            return Some(u64::from(rank));
        }
        self.others.get(&(id, cut as u32)).map(|&rank| u64::from(rank))
    }
}

/// The order in which a SentencePiece vocabulary merges: by falling score of the normal piece that comes out, then by
/// its left part.
pub struct ScoreOrder {
    places: Vec<u32>, // by id; NOT_MERGED where nothing merges into the piece
    longest: usize,
}

impl ScoreOrder {
    pub fn build(table: &TokenTable, scores: &[f32]) -> Result<Self> {
        let mut order: Vec<u32> = (0..table.len() as u32).filter(|&id| table.kind(id) == Kind::Normal).collect();
        let longest = check_lengths(order.iter().map(|&id| table.piece(id).len()))?;
        order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
        let mut places = vec![NOT_MERGED; table.len()];
        for (place, &id) in order.iter().enumerate() {
            places[id as usize] = place as u32;
        }
        Ok(Self { places, longest })
    }
}

impl MergeOrder for ScoreOrder {
    fn longest(&self) -> usize {
        self.longest
    }

    fn rank(&self, table: &TokenTable, (left, right): (u32, u32), _: usize, id: u32) -> Option<u64> {
        let is_part = |id| matches!(table.kind(id), Kind::Normal | Kind::UserDefined | Kind::Unused);
        let place = self.places[id as usize];
        (place != NOT_MERGED && is_part(left) && is_part(right)).then(|| (u64::from(place) << 32) | u64::from(left))
    }
}

/// Pairs seen lately, since text repeats itself: slots by pair, the last one stays.
#[derive(Default)]
pub struct PairMemory {
    slots: Vec<(u64, Option<Merge>)>,
    joined: Vec<u8>,
}

/// The merges of one vocabulary, for one encode call.
pub struct Pairs<'a, Order> {
    pub table: &'a TokenTable,
    pub index: &'a PieceIndex,
    pub order: &'a Order,
    pub memory: &'a mut PairMemory,
}

impl<Order: MergeOrder> Pairs<'_, Order> {
    fn find(&mut self, left: u32, right: u32) -> Option<Merge> {
        const SLOT_BITS: u32 = 11;
        const NO_PAIR: u64 = u64::MAX;
        if self.memory.slots.is_empty() {
            self.memory.slots.resize(1 << SLOT_BITS, (NO_PAIR, None));
        }
        let pair = (u64::from(left) << 32) | u64::from(right);
        let slot = (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOT_BITS)) as usize;
        if self.memory.slots[slot].0 == pair {
            return self.memory.slots[slot].1;
        }
        let merge = self.look_up(left, right);
        self.memory.slots[slot] = (pair, merge);
        merge
    }

    fn look_up(&mut self, left: u32, right: u32) -> Option<Merge> {
        let (first, second) = (self.table.piece(left), self.table.piece(right));
        if first.len() + second.len() > self.order.longest() {
            return None;
        }
        let joined = &mut self.memory.joined;
        joined.clear();
        joined.extend_from_slice(first);
        joined.extend_from_slice(second);
        let id = self.index.find(self.table, joined)?;
        let rank = self.order.rank(self.table, (left, right), first.len(), id)?;
        Some(Merge { rank, id })
    }
}

/// Replaces the symbols of one word by their merged form.
pub fn apply<O: MergeOrder>(pairs: &mut Pairs<O>, symbols: &mut Vec<u32>, scratch: &mut Scratch) {
    if symbols.len() < 2 {
        return;
    }
    if symbols.len() <= SCAN_LIMIT {
        apply_by_scan(pairs, symbols, &mut scratch.merges);
    } else {
        apply_by_heap(pairs, symbols, scratch);
    }
}

fn apply_by_scan<O: MergeOrder>(pairs: &mut Pairs<O>, symbols: &mut Vec<u32>, merges: &mut Vec<Option<Merge>>) {
    merges.clear();
    merges.extend(symbols.windows(2).map(|pair| pairs.find(pair[0], pair[1])));
    loop {
        let mut best: Option<(u64, usize)> = None;
        for (at, merge) in merges.iter().enumerate() {
            if let Some(merge) = merge {
                if best.is_none_or(|(rank, _)| merge.rank < rank) {
                    best = Some((merge.rank, at));
                }
            }
        }
        let Some((_, at)) = best else { return };
        symbols[at] = merges[at].map_or(NO_TOKEN, |merge| merge.id);
        symbols.remove(at + 1);
        merges.remove(at);
        if at < merges.len() {
            merges[at] = pairs.find(symbols[at], symbols[at + 1]);
        }
        if at > 0 {
            merges[at - 1] = pairs.find(symbols[at - 1], symbols[at]);
        }
    }
}

fn apply_by_heap<O: MergeOrder>(pairs: &mut Pairs<O>, symbols: &mut Vec<u32>, scratch: &mut Scratch) {
    let count = symbols.len();
    let links = &mut scratch.links;
    links.clear();
    links.extend((0..count).map(|i| (i.wrapping_sub(1), i + 1)));
    let heap = &mut scratch.heap;
    heap.clear();
    for at in 0..count - 1 {
        if let Some(merge) = pairs.find(symbols[at], symbols[at + 1]) {
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
            if let Some(merge) = pairs.find(id, symbols[after]) {
                heap.push(Reverse((merge.rank, at, id, symbols[after], merge.id)));
            }
        }
        let before = links[at].0;
        if before < count {
            if let Some(merge) = pairs.find(symbols[before], id) {
                heap.push(Reverse((merge.rank, before, symbols[before], id, merge.id)));
            }
        }
    }
    symbols.retain(|&id| id != NO_TOKEN);
}

type HeapEntry = Reverse<(u64, usize, u32, u32, u32)>;

/// Buffers that one encode call reuses from word to word.
#[derive(Default)]
pub struct Scratch {
    pub symbols: Vec<u32>,
    pub text: Vec<u8>,
    merges: Vec<Option<Merge>>,
    links: Vec<(usize, usize)>,
    heap: BinaryHeap<HeapEntry>,
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

    /// A vocabulary with the memory that its merges use from word to word.
    struct Merger<'a, O: MergeOrder> {
        table: &'a TokenTable,
        index: &'a PieceIndex,
        order: &'a O,
        memory: PairMemory,
        scratch: Scratch,
    }

    impl<'a, O: MergeOrder> Merger<'a, O> {
        fn new(table: &'a TokenTable, index: &'a PieceIndex, order: &'a O) -> Self {
            Self { table, index, order, memory: PairMemory::default(), scratch: Scratch::default() }
        }

        /// The tokens of a word whose characters are all tokens.
        fn symbols(&mut self, word: &str) -> Vec<u32> {
            let find = |c: char| self.index.find(self.table, c.to_string().as_bytes()).unwrap();
            let mut symbols: Vec<u32> = word.chars().map(find).collect();
            let (table, index, order) = (self.table, self.index, self.order);
            let mut pairs = Pairs { table, index, order, memory: &mut self.memory };
            apply(&mut pairs, &mut symbols, &mut self.scratch);
            symbols
        }
    }

    fn random_word(rng: &mut Rng, letters: &[char], longest: usize) -> String {
        (0..1 + rng.below(longest)).map(|_| letters[rng.below(letters.len())]).collect()
    }

    #[test]
    fn agrees_with_the_library_on_random_vocabularies() {
        let mut rng = Rng(7);
        let letters: Vec<char> = "abcdé▁".chars().collect();
        for round in 0..20 {
            let (table, lines, library) = random_model(&mut rng, &letters, 20 + round * 8);
            let index = PieceIndex::build("tokens", &table).unwrap();
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            let order = ListedMerges::build(&table, &index, &lines).unwrap();
            let mut merger = Merger::new(&table, &index, &order);
            for _ in 0..60 {
                let word = random_word(&mut rng, &letters, if round % 2 == 0 { 20 } else { 300 });
                let symbols = merger.symbols(&word);
                let expected: Vec<u32> = library.tokenize(&word).unwrap().iter().map(|t| t.id).collect();
                assert_eq!(symbols, expected, "{word}");
            }
        }
    }

    /// Two neighbours at a time over strings: the best score, then the lowest id, then the lowest left part, then
    /// the leftmost.
    fn merged_by_score(table: &TokenTable, scores: &[f32], word: &str) -> Vec<String> {
        let id_of = |text: &str| (0..table.len() as u32).find(|&id| table.piece(id) == text.as_bytes());
        let mut parts: Vec<String> = word.chars().map(|c| c.to_string()).collect();
        loop {
            let mut best: Option<(f32, u32, u32, usize)> = None;
            for at in 1..parts.len() {
                let left = id_of(&parts[at - 1]).unwrap();
                let right = id_of(&parts[at]).unwrap();
                let Some(id) = id_of(&format!("{}{}", parts[at - 1], parts[at])) else { continue };
                let usable = |id| !matches!(table.kind(id), Kind::Control | Kind::Byte);
                if table.kind(id) != Kind::Normal || !usable(left) || !usable(right) {
                    continue;
                }
                let this = (-scores[id as usize], id, left, at);
                if best.is_none_or(|best| this.partial_cmp(&best) == Some(std::cmp::Ordering::Less)) {
                    best = Some(this);
                }
            }
            let Some((.., at)) = best else { return parts };
            let right = parts.remove(at);
            parts[at - 1] += &right;
        }
    }

    #[test]
    fn scores_decide_what_merges() {
        let mut rng = Rng(11);
        let letters: Vec<char> = "abcé▁".chars().collect();
        for round in 0..20 {
            let (pieces, ..) = random_model(&mut rng, &letters, 10 + round * 6);
            let mut table = TokenTable::with_capacity(pieces.len(), 0);
            for id in 0..pieces.len() as u32 {
                // Of the longer pieces some only stand in text, and some never become of merges.
                let kind = match rng.below(8) {
                    0 if id as usize >= letters.len() => Kind::UserDefined,
                    1 if id as usize >= letters.len() => Kind::Unused,
                    _ => Kind::Normal,
                };
                table.push(pieces.piece(id), b"", kind);
            }
            // Few values, so that ties are many.
            let scores: Vec<f32> = (0..table.len()).map(|_| rng.below(6) as f32 - 3.0).collect();
            let index = PieceIndex::build("tokens", &table).unwrap();
            let order = ScoreOrder::build(&table, &scores).unwrap();
            let mut merger = Merger::new(&table, &index, &order);
            for _ in 0..40 {
                let word = random_word(&mut rng, &letters, if round % 2 == 0 { 20 } else { 90 });
                let symbols = merger.symbols(&word);
                let merged: Vec<&str> =
                    symbols.iter().map(|&id| std::str::from_utf8(table.piece(id)).unwrap()).collect();
                assert_eq!(merged, merged_by_score(&table, &scores, &word), "{word}");
            }
        }
    }

    #[test]
    fn vocabularies_of_endless_pieces_are_refused() {
        let mut table = TokenTable::with_capacity(1, 0);
        table.push(&vec![b'a'; 50_000], b"", Kind::Normal);
        assert!(ScoreOrder::build(&table, &[0.0]).err().unwrap().message.contains("squared bytes"));
        let index = PieceIndex::build("tokens", &table).unwrap();
        let line = [b"a ".as_slice(), &[b'a'; 49_999]].concat();
        let error = ListedMerges::build(&table, &index, &[&line]).err().unwrap();
        assert!(error.message.contains("squared bytes"));
    }

    #[test]
    fn several_cuts_of_a_piece_and_equal_lines() {
        let mut table = TokenTable::with_capacity(6, 0);
        for piece in ["a", "b", "c", "ab", "bc", "abc"] {
            table.push(piece.as_bytes(), b"", Kind::Normal);
        }
        let index = PieceIndex::build("tokens", &table).unwrap();
        let merged = |lines: &[&str], text: &[u32]| {
            let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
            let order = ListedMerges::build(&table, &index, &lines).unwrap();
            let mut memory = PairMemory::default();
            let mut pairs = Pairs { table: &table, index: &index, order: &order, memory: &mut memory };
            let mut symbols = text.to_vec();
            apply(&mut pairs, &mut symbols, &mut Scratch::default());
            symbols
        };
        let abc = [0, 1, 2];
        assert_eq!(merged(&["b c", "a bc"], &abc), [5]);
        assert_eq!(merged(&["b c", "ab c"], &abc), [0, 4]);
        assert_eq!(merged(&["b c", "ab c", "a b", "a bc"], &abc), [5]);
        assert_eq!(merged(&["a b", "b c", "a bc", "b c", "ab c"], &abc), [5]);
        assert_eq!(merged(&["a b", "b c", "a bc", "a b"], &abc), [3, 2]);
        // "b c" stands first, and again behind "a b".
        assert_eq!(merged(&["b c", "a b", "b c"], &abc), [0, 4]);
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
            assert!(ListedMerges::build(&table, &index, &[line.as_bytes()]).is_err(), "{line:?}");
        }
    }
}
