//! Which tokens end an answer.

use crate::token_table::{Kind, TokenTable};

/// Names that end a turn or a text. They count as control tokens even where a file types them otherwise.
const TURN_ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<|end_of_turn|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "<end_of_utterance>",
    "<turn|>",
];
/// These only where the file calls them control tokens.
const TEXT_ENDS: &[&str] = &["</s>", "<eos>", "<EOT>", "[EOS]"];

pub fn is_turn_end(piece: &[u8]) -> bool {
    TURN_ENDS.iter().any(|name| name.as_bytes() == piece)
}

/// The declared ids first, then all control tokens that mean an end by their name, ascending.
pub fn find(table: &TokenTable, declared: &[Option<u32>]) -> Vec<u32> {
    let mut ends: Vec<u32> = Vec::new();
    for id in declared.iter().flatten().copied() {
        if (id as usize) < table.len() && !ends.contains(&id) {
            ends.push(id);
        }
    }
    let named: Vec<u32> = (0..table.len() as u32)
        .filter(|&id| table.kind(id) == Kind::Control)
        .filter(|&id| is_turn_end(table.piece(id)) || TEXT_ENDS.iter().any(|name| name.as_bytes() == table.piece(id)))
        .collect();
    // Where a message may go on after <|end|> (a channel of gpt-oss), <|return|> and <|call|> end the answer.
    let has = |name: &str| named.iter().any(|&id| table.piece(id) == name.as_bytes());
    let channels = has("<|return|>") && has("<|call|>");
    for id in named {
        let goes_on = channels && table.piece(id) == b"<|end|>";
        if !goes_on && !ends.contains(&id) {
            ends.push(id);
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pieces: &[(&str, Kind)]) -> TokenTable {
        let mut table = TokenTable::with_capacity(pieces.len(), 0);
        for (piece, kind) in pieces {
            table.push(piece.as_bytes(), b"", *kind);
        }
        table
    }

    #[test]
    fn names_and_declared_ids() {
        let chat = table(&[
            ("<|im_end|>", Kind::Control),
            ("</s>", Kind::Control),
            ("a", Kind::Normal),
            ("<|end|>", Kind::Control),
            ("<eos>", Kind::UserDefined),
        ]);
        assert_eq!(find(&chat, &[Some(1), None, Some(9)]), [1, 0, 3]);
        let channels = table(&[("<|end|>", Kind::Control), ("<|return|>", Kind::Control), ("<|call|>", Kind::Control)]);
        assert_eq!(find(&channels, &[None]), [1, 2]);
    }
}
