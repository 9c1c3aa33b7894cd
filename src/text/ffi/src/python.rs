//! What chat templates expect from Python: json.dumps, int(), float() and strftime.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

const MAX_JSON_BYTES: usize = 1 << 25;
const MAX_DEPTH: usize = 100;

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// A float as Python's repr writes it: shortest digits, exponent below 1e-4 and from 1e16 on.
pub fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

struct JsonStyle {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

struct JsonWriter {
    style: JsonStyle,
    out: String,
}

impl JsonWriter {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(bad(format!("tojson: more than {MAX_DEPTH} levels")));
        }
        if self.out.len() > MAX_JSON_BYTES {
            return Err(bad(format!("tojson: more than {MAX_JSON_BYTES} bytes")));
        }
        match value.kind() {
            ValueKind::Undefined => Err(bad("Object of type Undefined is not JSON serializable")),
            ValueKind::None => {
                self.out.push_str("null");
                Ok(())
            }
            ValueKind::Bool => {
                self.out.push_str(if value.is_true() { "true" } else { "false" });
                Ok(())
            }
            ValueKind::Number => self.number(value),
            ValueKind::String => {
                self.string(value.as_str().unwrap_or(""));
                Ok(())
            }
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth),
            ValueKind::Map => self.object(value, depth),
            other => Err(bad(format!("Object of type {other} is not JSON serializable"))),
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            self.out.push_str(&float_text(f64::try_from(value.clone())?));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.style.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            if any {
                self.out.push_str(&self.style.item_separator);
            }
            any = true;
            self.line(depth + 1);
            self.value(&item, depth + 1)?;
        }
        if any {
            self.line(depth);
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                self.out.push_str(&self.style.item_separator);
            }
            self.line(depth + 1);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or("")),
                ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
                ValueKind::None => self.string("null"),
                _ => self.string(&key.to_string()),
            }
            self.out.push_str(&self.style.key_separator);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        if !keys.is_empty() {
            self.line(depth);
        }
        self.out.push('}');
        Ok(())
    }
}

/// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False), as json.dumps: no HTML escaping.
pub fn tojson(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(at) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = argument(1, "indent")?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    const MAX_INDENT: usize = 64;
    let indent = match indent {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(|text| text.chars().take(MAX_INDENT).collect()),
        Some(count) => Some(" ".repeat(usize::try_from(count).unwrap_or(0).min(MAX_INDENT))),
    };
    let (mut item_separator, mut key_separator) =
        (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(pair) = separators {
        let pair: Vec<Value> = pair.try_iter()?.take(3).collect();
        let [item, key] = pair.as_slice() else { return Err(bad("tojson: separators must be a pair")) };
        item_separator = item.to_string();
        key_separator = key.to_string();
    }
    let style = JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut writer = JsonWriter { style, out: String::new() };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

/// Jinja2's `int`: the default (0) for whatever has no integer value.
pub fn int(value: &Value, default: Option<Value>, base: Option<u32>, named: Kwargs) -> Result<Value, Error> {
    let default = default.or(named.get("default")?).unwrap_or(Value::from(0));
    let base = base.or(named.get("base")?).unwrap_or(10);
    named.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(bad(format!("int: base is {base}, limits are 2 and 36")));
    }
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(number) if number.is_finite() => Value::from(number as i128),
            _ => default,
        },
        ValueKind::String => {
            let text = value.as_str().unwrap_or("").trim();
            let digits = text.strip_prefix('+').unwrap_or(text).replace('_', "");
            let unprefixed = match base {
                16 => digits.trim_start_matches("0x").trim_start_matches("0X"),
                8 => digits.trim_start_matches("0o"),
                2 => digits.trim_start_matches("0b"),
                _ => &digits,
            };
            match (i128::from_str_radix(unprefixed, base), parse_float(text)) {
                (Ok(number), _) => Value::from(number),
                (Err(_), Some(number)) if number.is_finite() => Value::from(number as i128),
                _ => default,
            }
        }
        _ => default,
    })
}

fn parse_float(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

/// Jinja2's `float`: the default (0.0) for whatever has no float value.
pub fn float(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = default.or(named.get("default")?).unwrap_or(Value::from(0.0));
    named.assert_all_used()?;
    let number = match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => parse_float(value.as_str().unwrap_or("")),
        _ => None,
    };
    Ok(number.map_or(default, Value::from))
}

/// Strings, lists, mappings and iterators; not none, which minijinja would iterate as empty.
pub fn is_iterable(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}

/// A moment of local time.
#[derive(Clone, Copy)]
pub struct Moment {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Moment {
    /// From `YYYY-MM-DDTHH:MM:SS` (a blank may stand for the T).
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let shape = b"0000-00-00T00:00:00";
        if bytes.len() != shape.len() {
            return None;
        }
        let fits = bytes.iter().zip(shape).all(|(&have, &want)| match want {
            b'0' => have.is_ascii_digit(),
            b'T' => have == b'T' || have == b' ',
            _ => have == want,
        });
        if !fits {
            return None;
        }
        let number = |from: usize, to: usize| text[from..to].parse::<i64>().ok();
        let moment = Moment {
            year: number(0, 4)?,
            month: number(5, 7)?,
            day: number(8, 10)?,
            hour: number(11, 13)?,
            minute: number(14, 16)?,
            second: number(17, 19)?,
        };
        let valid = (1..=12).contains(&moment.month)
            && (1..=days_in(moment.year, moment.month)).contains(&moment.day)
            && moment.hour < 24
            && moment.minute < 60
            && moment.second < 61;
        valid.then_some(moment)
    }

    fn day_of_year(self) -> i64 {
        (1..self.month).map(|month| days_in(self.year, month)).sum::<i64>() + self.day
    }

    /// Sunday is 0 (Sakamoto's method).
    fn weekday(self) -> i64 {
        const OFFSETS: [i64; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        (year + year / 4 - year / 100 + year / 400 + OFFSETS[self.month as usize - 1] + self.day).rem_euclid(7)
    }

    /// Python's strftime in the C locale; a directive that it does not know stays as it is.
    pub fn format(self, pattern: &str) -> String {
        let mut out = String::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let Some(mut directive) = chars.next() else {
                out.push('%');
                break;
            };
            let unpadded = directive == '-';
            if unpadded {
                let Some(next) = chars.next() else {
                    out.push_str("%-");
                    break;
                };
                directive = next;
            }
            match self.directive(directive) {
                Some(text) if unpadded => {
                    let short = text.trim_start_matches(['0', ' ']);
                    out.push_str(if short.is_empty() { "0" } else { short });
                }
                Some(text) => out.push_str(&text),
                None => {
                    out.push('%');
                    if unpadded {
                        out.push('-');
                    }
                    out.push(directive);
                }
            }
        }
        out
    }

    fn directive(self, directive: char) -> Option<String> {
        let month = MONTHS[self.month as usize - 1];
        let weekday = WEEKDAYS[self.weekday() as usize];
        let hour12 = if self.hour % 12 == 0 { 12 } else { self.hour % 12 };
        let weekday_from_monday = (self.weekday() + 6) % 7;
        Some(match directive {
            'Y' => format!("{:04}", self.year),
            'y' => format!("{:02}", self.year % 100),
            'C' => format!("{:02}", self.year / 100),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".to_owned(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'j' => format!("{:03}", self.day_of_year()),
            'w' => self.weekday().to_string(),
            'u' => (weekday_from_monday + 1).to_string(),
            'U' => format!("{:02}", (self.day_of_year() + 6 - self.weekday()) / 7),
            'W' => format!("{:02}", (self.day_of_year() + 6 - weekday_from_monday) / 7),
            'F' => self.format("%Y-%m-%d"),
            'T' | 'X' => self.format("%H:%M:%S"),
            'R' => self.format("%H:%M"),
            'D' | 'x' => self.format("%m/%d/%y"),
            'c' => self.format("%a %b %e %H:%M:%S %Y"),
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_like_python() {
        let cases: [(f64, &str); 9] = [
            (21.5, "21.5"),
            (1e20, "1e+20"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
            (123456.0, "123456.0"),
        ];
        for (value, text) in cases {
            assert_eq!(float_text(value), text);
        }
    }

    #[test]
    fn moments_format_like_strftime() {
        let moment = Moment::parse("2024-07-26T12:05:09").unwrap();
        let text = moment.format("%A %a %d %-d %B %b %Y %y %H:%M:%S %I %p %j %U %W %w %u %% %Q %e");
        assert_eq!(text, "Friday Fri 26 26 July Jul 2024 24 12:05:09 12 PM 208 29 30 5 5 % %Q 26");
        let first = Moment::parse("2000-01-01 00:00:00").unwrap();
        assert_eq!(first.format("%A %-m/%-d %I %-H %j %U %W"), "Saturday 1/1 12 0 001 00 00");
        for text in ["", "2024-13-01T00:00:00", "2023-02-29T00:00:00", "2024-07-26", "２024-07-26T12:00:0"] {
            assert!(Moment::parse(text).is_none(), "{text}");
        }
    }
}
