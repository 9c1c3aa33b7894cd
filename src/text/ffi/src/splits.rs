//! Cutting text into words before BPE, without back-tracking.
//!
//! The published rules end in `\s+(?!\S)|\s+`: a run of blanks leaves its last blank to the word that follows. A regular
//! expression with look-ahead needs a back-tracking engine, which gives up on long runs. Here the run is matched by
//! `\s+` in linear time and shortened afterwards, which is the same by definition of the look-ahead.

use regex::Regex;

/// What happens to a match that is a run of blanks with a word behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Blanks {
    /// The rule has no `\s+(?!\S)`.
    Keep,
    /// The last blank goes to the following word.
    GiveLast,
    /// The same, but a run that ends in a line break was matched by `\s*[\r\n]+` and stays whole.
    GiveLastUnlessLineBreak,
}

/// One cut of each piece: every match becomes a piece, and what lies between matches too.
pub enum Step {
    Matches {
        regex: Regex,
        blanks: Blanks,
    },
    /// Runs of `regex` (digits) cut so that all groups but the first have three. A run is left alone when what
    /// follows it matches `unless_before`.
    Triples {
        regex: Regex,
        unless_before: Option<Regex>,
    },
}

type Range = (usize, usize);

impl Step {
    fn apply(&self, text: &str, piece: Range, out: &mut Vec<Range>) {
        let (start, end) = piece;
        let slice = &text[start..end];
        let mut done = 0;
        let mut emit = |from: usize, to: usize| {
            if from < to {
                out.push((start + from, start + to));
            }
        };
        match self {
            Step::Matches { regex, blanks } => {
                let mut at = 0;
                while let Some(found) = regex.find_at(slice, at) {
                    let stop = shortened(slice, found.start(), found.end(), *blanks);
                    emit(done, found.start());
                    emit(found.start(), stop);
                    done = stop;
                    at = stop;
                    if stop == found.start() {
                        break;
                    }
                }
            }
            Step::Triples { regex, unless_before } => {
                for run in regex.find_iter(slice) {
                    if unless_before.as_ref().is_some_and(|next| next.is_match(&slice[run.end()..])) {
                        continue;
                    }
                    emit(done, run.start());
                    let starts: Vec<usize> = run.as_str().char_indices().map(|(at, _)| run.start() + at).collect();
                    let first = match starts.len() % 3 {
                        0 => 3,
                        rest => rest,
                    };
                    done = run.start();
                    for cut in (first..starts.len()).step_by(3) {
                        emit(done, starts[cut]);
                        done = starts[cut];
                    }
                    emit(done, run.end());
                    done = run.end();
                }
            }
        }
        emit(done, slice.len());
    }
}

fn shortened(slice: &str, start: usize, end: usize, blanks: Blanks) -> usize {
    if blanks == Blanks::Keep || end == slice.len() {
        return end;
    }
    let Some(last) = slice[start..end].chars().next_back() else { return end };
    let line_break = last == '\n' || last == '\r';
    if !last.is_whitespace() || (line_break && blanks == Blanks::GiveLastUnlessLineBreak) {
        return end;
    }
    let shorter = end - last.len_utf8();
    if shorter == start {
        end
    } else {
        shorter
    }
}

/// The words of `text`, in order and without gaps.
pub fn words(steps: &[Step], text: &str, words: &mut Vec<Range>, spare: &mut Vec<Range>) {
    words.clear();
    words.push((0, text.len()));
    for step in steps {
        spare.clear();
        for &piece in words.iter() {
            step.apply(text, piece, spare);
        }
        std::mem::swap(words, spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretokenizers;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

    fn cut(steps: &[Step], text: &str) -> Vec<String> {
        let (mut out, mut spare) = (Vec::new(), Vec::new());
        words(steps, text, &mut out, &mut spare);
        out.iter().map(|&(a, b)| text[a..b].to_owned()).collect()
    }

    fn ours(name: &str, text: &str) -> Vec<String> {
        cut(&pretokenizers::find(name).unwrap().steps, text)
    }

    /// The published rule by the back-tracking engine of the library.
    fn library(patterns: &[&str]) -> Vec<Split> {
        let split = |pattern: &&str| {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap()
        };
        patterns.iter().map(split).collect()
    }

    fn theirs(splits: &[Split], text: &str) -> Vec<String> {
        let mut pieces = PreTokenizedString::from(text);
        for split in splits {
            split.pre_tokenize(&mut pieces).unwrap();
        }
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(piece, _, _)| piece.to_owned()).collect()
    }

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const TINY_AYA: &str = r"\d{1,3}(?=(?:\d{3})*\b)";

    #[test]
    fn shortened_runs_equal_look_ahead_on_random_text() {
        let alphabet: Vec<char> = "aB1 \n\r\t'sé.,/中\u{3000}_٣\u{301}".chars().collect();
        let rules: [(&str, Vec<&str>); 6] = [
            ("gpt-2", vec![GPT2]),
            ("smollm", vec![r"\p{N}", GPT2]),
            ("llama-bpe", vec![LLAMA3]),
            ("qwen2", vec![QWEN2]),
            ("gpt-4o", vec![GPT4O]),
            ("tiny_aya", vec![TINY_AYA, GPT4O]),
        ];
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) as usize) % n
        };
        for (name, patterns) in &rules {
            let (rule, splits) = (pretokenizers::find(name).unwrap(), library(patterns));
            for _ in 0..1500 {
                let text: String = (0..1 + below(24)).map(|_| alphabet[below(alphabet.len())]).collect();
                assert_eq!(cut(&rule.steps, &text), theirs(&splits, &text), "{name} {text:?}");
            }
        }
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!(ours("superbpe", "1234567 x"), ["1", "234", "567", " x"]);
        assert_eq!(ours("afmoe", "123456"), ["123", "456"]);
        assert_eq!(ours("tiny_aya", "12345."), ["12", "345", "."]);
    }

    #[test]
    fn every_known_name_cuts_without_loss() {
        let text = "Hello  wörld\n\n  12345 it's 中文 한국어 \u{301} <sentinel:3> IMGIMGABZ \t!? end  ";
        for name in pretokenizers::names() {
            assert_eq!(ours(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn a_megabyte_of_blanks_is_no_problem() {
        let text = " ".repeat(1 << 20) + "x";
        for name in ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "tekken"] {
            assert!(ours(name, &text).len() <= 3, "{name}");
        }
    }
}
