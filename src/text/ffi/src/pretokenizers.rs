//! Pre-tokenizer names of GGUF files (`tokenizer.ggml.pre`) and the rule of each.
//!
//! The expressions are facts of the published tokenizer.json files; the look-ahead at their end is explained in splits.rs.

use regex::Regex;

use crate::splits::{Blanks, Step};

/// All that follows from the name.
pub struct Rule {
    pub steps: Vec<Step>,
    /// Text is composed (NFC) before it is cut.
    pub composes: bool,
    /// A word that is itself a token is that token, whatever the merges say.
    pub ignores_merges: bool,
    /// BOS in front when the file does not say.
    pub adds_bos: bool,
    /// EOS (separator) at the end when the file does not say.
    pub adds_eos: bool,
}

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const PUNCTUATION_THEN_LETTERS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
const HAN_KANA: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
// Letters of cased scripts as deepseek-llm lists them; escapes, since normalising tools would change some of them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}",
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}",
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}",
    r"\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}",
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}",
    r"\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}",
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}",
    r"\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}",
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}",
    r"\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}",
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}",
    r"\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}",
    r"\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+",
);
const DEEPSEEK_PUNCTUATION: &str = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const DEEPSEEK_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const AFMOE_ASIA: &str = concat!(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}",
    r"\x{2F00}-\x{2FDF}\x{0E00}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}",
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+",
);
const YOUTU_SCRIPTS: &str = concat!(
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}",
    r"\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|",
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
);

/// The Llama-3 shape: contractions, letters with one sign in front, numbers, signs with line ends, blanks.
struct Shape<'a> {
    contractions: &'a str,
    letters: &'a str,
    numbers: &'a str,
    signs: &'a str,
}

impl Shape<'_> {
    fn pattern(&self) -> String {
        let head = if self.contractions.is_empty() { String::new() } else { format!("{}|", self.contractions) };
        format!(r"{head}{}|{}|{}|\s*[\r\n]+|\s+", self.letters, self.numbers, self.signs)
    }
}

const LLAMA3: Shape = Shape {
    contractions: CONTRACTIONS,
    letters: r"[^\r\n\p{L}\p{N}]?\p{L}+",
    numbers: r"\p{N}{1,3}",
    signs: r" ?[^\s\p{L}\p{N}]+[\r\n]*",
};
const QWEN2: Shape = Shape { numbers: r"\p{N}", ..LLAMA3 };

/// Words by case (GPT-4o): upper-case letters then lower-case ones; `tail` may follow both, `outside` excludes a script.
fn cased(tail: &str, outside: &str) -> String {
    let upper = format!(r"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{outside}]");
    let lower = format!(r"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{outside}]");
    let sign = r"[^\r\n\p{L}\p{N}]?";
    format!("{sign}{upper}*{lower}+{tail}|{sign}{upper}+{lower}*{tail}")
}

fn cut(pattern: &str, blanks: Blanks) -> Step {
    let regex = Regex::new(pattern).expect("pre-tokenizer expressions are constants");
    Step::Matches { regex, blanks }
}

fn at(pattern: &str) -> Step {
    cut(pattern, Blanks::Keep)
}

fn gpt2() -> Step {
    cut(GPT2, Blanks::GiveLast)
}

fn shaped(shape: &Shape) -> Step {
    cut(&shape.pattern(), Blanks::GiveLastUnlessLineBreak)
}

fn triples(run: &str, unless_before: Option<&str>) -> Step {
    let compiled = |pattern| Regex::new(pattern).expect("pre-tokenizer expressions are constants");
    Step::Triples { regex: compiled(run), unless_before: unless_before.map(compiled) }
}

fn gpt4o(numbers: &str, tail: &str) -> Step {
    shaped(&Shape { contractions: "", letters: &cased(tail, ""), numbers, signs: r" ?[^\s\p{L}\p{N}]+[\r\n/]*" })
}

fn after_punctuation() -> Step {
    cut(PUNCTUATION_THEN_LETTERS, Blanks::GiveLastUnlessLineBreak)
}

fn chameleon() -> Vec<Step> {
    vec![
        at("<sentinel:[0-9]+>"),
        at("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
        at(r"([\t\n]|    |  )"),
        at(r"\p{N}"),
        at(r"[\p{P}!-/:-@\[-`{-~]"),
        gpt2(),
    ]
}

fn falcon(numbers: bool) -> Vec<Step> {
    let signs = if numbers { r"[\p{P}\$\+<=>\^~\|]+" } else { r"[\p{P}\$\+<=>\^~\|`]+" };
    let mut steps = vec![at(signs), gpt2()];
    if numbers {
        steps.push(at(r"\p{N}+"));
    }
    steps.push(at("[0-9][0-9][0-9]"));
    steps
}

fn kimi_k2() -> Step {
    let letters = format!(r"\p{{Han}}+|{}", cased(&format!("{CONTRACTIONS}?"), r"&&[^\p{Han}]"));
    shaped(&Shape { contractions: "", letters: &letters, ..LLAMA3 })
}

fn exaone_moe() -> Step {
    let letters = r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+";
    shaped(&Shape { letters, signs: r" ?[^\s\p{L}\p{N}]+[\r\n/]?", ..QWEN2 })
}

fn qwen35() -> Step {
    let letters = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+";
    shaped(&Shape { letters, signs: r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", ..QWEN2 })
}

fn tiny_aya() -> Vec<Step> {
    vec![triples(r"\d+", Some(r"\A\w")), gpt4o(r"\p{N}{1,3}", &format!("{CONTRACTIONS}?"))]
}

fn steps(name: &str) -> Option<Vec<Step>> {
    let contractions = format!("{CONTRACTIONS}?");
    Some(match name {
        "gpt-2" | "mpt" | "phi-2" | "olmo" | "jais" | "exaone4" | "modern-bert" | "trillion" | "granite-docling"
        | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe"
        | "gigachat" | "a.x-4.0" | "mellum" => vec![gpt2()],
        "starcoder" | "refact" | "smollm" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            vec![at(r"\p{N}"), gpt2()]
        }
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "lfm2" | "midm-2.0"
        | "jina-v5-nano" | "dbrx" | "smaug-bpe" | "chatglm-bpe" | "glm4" => vec![shaped(&LLAMA3)],
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "hunyuan" | "megrez" | "kormo" | "f2llmv2" | "solar-open"
        | "grok-2" | "bailingmoe" | "bailingmoe2" | "llada-moe" => vec![shaped(&QWEN2)],
        "qwen35" => vec![qwen35()],
        "default" => falcon(true),
        "falcon" => falcon(false),
        "deepseek-llm" => vec![
            at(r"[\r\n]"),
            at(DEEPSEEK_LETTERS),
            at(DEEPSEEK_PUNCTUATION),
            at(r"\s+$"),
            at(DEEPSEEK_CJK),
            at(r"\p{N}+"),
        ],
        "deepseek-coder" => {
            vec![at(r"[\r\n]"), at(r"\s?\p{L}+"), at(r"\s?\p{P}+"), at(DEEPSEEK_CJK), at(r"\p{N}")]
        }
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => {
            vec![at(r"\p{N}{1,3}"), at(HAN_KANA), after_punctuation()]
        }
        "tekken" => vec![gpt4o(r"\p{N}", "")],
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => vec![gpt4o(r"\p{N}{1,3}", &contractions)],
        "bloom" | "poro-chat" | "gpt3-finnish" => vec![at(BLOOM)],
        "viking" => vec![at(BLOOM), at(r"\p{N}")],
        "chameleon" => chameleon(),
        "youtu" => vec![at(YOUTU_SCRIPTS), gpt4o(r"\p{N}", &contractions)],
        "kimi-k2" => vec![kimi_k2()],
        "afmoe" => vec![triples(r"\p{N}+", None), at(AFMOE_ASIA), after_punctuation()],
        "superbpe" => vec![at(r"\p{N}+"), triples(r"\d+", None)],
        "seed-coder" => vec![shaped(&Shape { signs: r" ?[^\s\p{L}\p{N}\r\n]+", ..QWEN2 })],
        "exaone-moe" => vec![exaone_moe()],
        "tiny_aya" | "cohere2moe" => tiny_aya(),
        "minicpm5" => vec![at(r"\p{N}{1,3}"), shaped(&Shape { numbers: r"\p{N}+", ..LLAMA3 })],
        "ufakzeka" => vec![shaped(&Shape { contractions: "", ..QWEN2 })],
        "laguna" => vec![at(r"[^\n]+|[\n]+"), shaped(&QWEN2)],
        _ => return None,
    })
}

/// All names that `find` knows, for the error message and the tests.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.split_whitespace()
}

const NAMES: &str = "a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe command-r dbrx \
    deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone exaone-moe exaone4 f2llmv2 falcon falcon-h1 \
    falcon3 gigachat glm4 gpt-2 gpt-4o gpt3-finnish granite-docling grok-2 hunyuan hunyuan-dense jais jina-de jina-es \
    jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-v5-nano joyai-llm kanana2 kimi-k2 kormo laguna lfm2 llada-moe \
    llama-bpe llama-v3 llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 modern-bert mpt olmo \
    phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe seed-coder smaug-bpe smollm solar-open stablelm2 starcoder \
    superbpe talkie tekken tiny_aya trillion ufakzeka viking youtu";

/// The rule of a pre-tokenizer name; None when it is unknown.
pub fn find(name: &str) -> Option<Rule> {
    let steps = steps(name)?;
    let llama3 = matches!(
        name,
        "llama-bpe"
            | "llama3"
            | "llama-v3"
            | "falcon3"
            | "falcon-h1"
            | "pixtral"
            | "lfm2"
            | "midm-2.0"
            | "jina-v5-nano"
    );
    Some(Rule {
        steps,
        composes: matches!(name, "mpt" | "olmo" | "modern-bert" | "qwen2" | "qwen35" | "deepseek-r1-qwen"),
        ignores_merges: llama3 || matches!(name, "tekken" | "youtu" | "minicpm5"),
        adds_bos: llama3 || matches!(name, "tekken" | "chameleon" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe"),
        adds_eos: matches!(name, "jina-v1-en" | "jina-v2-code" | "roberta-bpe"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_names_are_sorted_and_known() {
        let listed: Vec<&str> = names().collect();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        assert_eq!(listed, sorted);
        assert!(listed.iter().all(|name| find(name).is_some()));
        assert!(find("no-such-rule").is_none());
    }
}
