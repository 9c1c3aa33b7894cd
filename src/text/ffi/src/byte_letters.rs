//! The GPT-2 alphabet: every byte has a printable letter (Radford et al. 2019, byte-level BPE).

/// The letter of each byte: itself where it is printable in Latin-1, else U+0100 upward in order of the bytes.
pub fn letters() -> [char; 256] {
    let mut letters = ['\0'; 256];
    let mut next = 0x100;
    for (byte, letter) in letters.iter_mut().enumerate() {
        let code = byte as u32;
        let printable = matches!(code, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable { code } else { next };
        if !printable {
            next += 1;
        }
        *letter = char::from_u32(code).unwrap_or('\0');
    }
    letters
}

/// Both directions, built once for a tokenizer.
pub struct ByteLetters {
    letters: [char; 256],
    bytes: [i16; 0x200],
}

impl ByteLetters {
    pub fn new() -> Self {
        let letters = letters();
        let mut bytes = [-1i16; 0x200];
        for (byte, letter) in letters.iter().enumerate() {
            bytes[*letter as usize] = byte as i16;
        }
        Self { letters, bytes }
    }

    pub fn letter(&self, byte: u8) -> char {
        self.letters[byte as usize]
    }

    /// The bytes that `piece`, which is UTF-8, spells, appended to `out`. A character outside the alphabet stands for
    /// itself. Letters have one or two bytes.
    pub fn spell(&self, piece: &[u8], out: &mut Vec<u8>) {
        let mut rest = piece;
        loop {
            let (code, after) = match *rest {
                [] => return,
                [lead @ 0xC0..=0xDF, next, ref after @ ..] => {
                    ((lead as usize & 0x1F) << 6 | (next as usize & 0x3F), after)
                }
                [byte, ref after @ ..] if byte < 0x80 => (byte as usize, after),
                [byte, ref after @ ..] => {
                    out.push(byte);
                    rest = after;
                    continue;
                }
            };
            match self.bytes.get(code).copied() {
                Some(byte) if byte >= 0 => out.push(byte as u8),
                _ => out.extend_from_slice(&rest[..rest.len() - after.len()]),
            }
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_distinct_and_spell_their_bytes() {
        let alphabet = ByteLetters::new();
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255u8 {
            let letter = alphabet.letter(byte);
            assert!(seen.insert(letter));
            let mut out = Vec::new();
            alphabet.spell(letter.to_string().as_bytes(), &mut out);
            assert_eq!(out, [byte]);
        }
        let mut out = Vec::new();
        alphabet.spell("aĠ\u{7FF}é€😀\u{1}Ń".as_bytes(), &mut out);
        assert_eq!(out, b"a \xDF\xBF\xE9\xE2\x82\xAC\xF0\x9F\x98\x80\x01\xAD");
        assert_eq!(alphabet.letter(b' '), 'Ġ');
        assert_eq!(alphabet.letter(b'\n'), 'Ċ');
    }
}
